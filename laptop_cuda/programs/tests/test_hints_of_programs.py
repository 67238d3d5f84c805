"""The first plain run of a program is checked in passing, and does what it would have done."""
import secrets

import pytest

from laptop_cuda import __main__ as command, hints, programs

SOURCE = """
#include <cstdio>
#include <fstream>
static std::ofstream log_file("LOG");
template <class T> __global__ void sum(const T* x, T* out, int n) {
    if (threadIdx.x < n) atomicAdd(out, x[threadIdx.x]);
}
int main(int n, char** words) {
    float *x, *out, h[64], r;
    for (float& v : h) v = 1;
    cudaMalloc(&x, 256), cudaMalloc(&out, 4), cudaMemset(out, 0, 4);
    cudaMemcpy(x, h, 256, cudaMemcpyHostToDevice);
    for (int i = 0; i < 2; ++i) sum<<<1, 96>>>(x, out, SIZE);
    log_file << "once";
    cudaMemcpy(&r, out, 4, cudaMemcpyDeviceToHost);
    printf("%g %d\\n", SIZE > 64 ? 0 : r, n);
}
"""


@pytest.mark.slow
def test_an_overrun_is_one_line_and_what_is_right_none(tmp_path, monkeypatch, capfd):
    def ran(*more: str):
        return command.main(["run", *more, "prog.cu", "word"]), *capfd.readouterr(), (tmp_path / "LOG").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hints, "SECONDS", 30)            # it was read from the environment long ago
    (tmp_path / "prog.cu").write_text(f"// {secrets.token_hex(8)}{SOURCE}")
    programs.compile_program([tmp_path / "prog.cu"], programs.Options(defines=("SIZE=65",)))      # else a build in the background
    said = "laptop_cuda: hint: out of bounds in sum, line 6: `python -m laptop_cuda run` without --plain explains it\n"
    assert ran("--plain", "-DSIZE=65") == (0, "0 2\n", said, "once")
    assert ran("--plain", "-DSIZE=65") == (0, "0 2\n", "", "once")
    assert ran("--plain", "-DSIZE=64") == (0, "128 2\n", "", "once")
