"""`inspect`: what compiler and disassembler say is read rightly, and joined with the counts rightly."""
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import mod as module, with_disassembler, with_nvcc  # noqa: F401
from laptop_cuda import gpu
from laptop_cuda.inside import inspect_command, machine_code, roofline, toolkit
from laptop_cuda.report import executed
from laptop_cuda.__main__ import main
from laptop_cuda.inside.lines import by_line, statements
from laptop_cuda.inside.model import executions
from laptop_cuda.toolchain.lines import Place
from laptop_cuda.inside.toolkit import InspectError

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """__device__ float twice(float a) {
    return a * 2.0f;
}
template <int N> __global__ void tile(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float s[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < N; ++j) {
        sum += s[j] * n;
    }
    if (i % 2) {
        sum = twice(sum);
    }
    if (i == 3) return;
    y[i] = sum;
}
__global__ void __launch_bounds__(96) add(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x] + 1;
}
"""
# One kernel of two basic blocks, a loop and its padding, in the form that nvdisasm 13.2 writes for sm_90.
SASS = """
	.section	.text._Z1kPf,"ax",@progbits
.text._Z1kPf:
	//## File "/somewhere/source.cu", line 3
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   IMAD.MOV.U32 R2, RZ, RZ, 0x1 ;
.L_x_1:
	//## File "/toolkit/sm_30_intrinsics.hpp", line 449 inlined at "/somewhere/rows.cuh", line 29
	//## File "/somewhere/rows.cuh", line 29 inlined at "/somewhere/source.cu", line 5
	//## File "/somewhere/source.cu", line 5
        /*0020*/                   SHFL.BFLY PT, R7, R6, 0x1, 0x1f ;
	//## File "/somewhere/source.cu", line 5
        /*0030*/                   LDG.E.128.CONSTANT R8, desc[UR4][R2.64] ;
        /*0040*/                   LDS.64 R12, [R4+UR4] ;
        /*0050*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0060*/                   LDSM.16.M88.4 R4, [R3] ;
        /*0070*/                   HFMA2.MMA R20, -RZ, RZ, 0, 0 ;
        /*0080*/               @P1 BRA `(.L_x_1) ;
        /*0090*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;
        /*00a0*/                   EXIT ;
        .weak           $__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath
$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath:
        /*00b0*/                   MUFU.RCP R6, R7 ;
        /*00c0*/                   RET.REL.NODEC R2 `(_Z1kPf) ;
.L_x_2:
        /*00d0*/                   BRA `(.L_x_2);
        /*00e0*/                   NOP;
.L_x_3:
	.section	.text._Z5otherv,"ax",@progbits
.text._Z5otherv:
        /*0000*/                   FADD R1, R2, R3 ;
"""


def test_the_disassembler_s_text_is_read():
    code = machine_code.read(SASS, "_Z1kPf")
    assert ([i.kind for i in code.instructions] == ["constant load", "move", "warp", "global load",
                                                    "shared load", "tensor", "shared load", "move", "control",
                                                    "control", "control", "special", "control"])
    assert [i.bytes for i in code.instructions if "load" in i.kind] == [4, 16, 8, 16]
    assert [i.flops for i in code.instructions if i.kind == "tensor"] == [2 * 16 * 8 * 16]
    assert code.loops == [(1, 1)] and code.instructions[2].block == 1
    assert code.instructions[2].places == (
        ("/toolkit/sm_30_intrinsics.hpp", 449), ("/somewhere/rows.cuh", 29), ("/somewhere/source.cu", 5))
    called = [i for i in code.instructions if i.block in code.rare]
    assert {"CALL", "MUFU", "RET"} <= {i.name for i in called} and "LDG" not in {i.name for i in called}


def test_the_line_is_the_innermost_of_the_source_s_own_files():
    lines = by_line(machine_code.read(SASS, "_Z1kPf"), {"k.cu": "\n" * 4 + "five", "rows.cuh": ""}, None)
    assert ([(line.file, line.line, len(line.sass)) for line in lines]
            == [("k.cu", 3, 2), ("k.cu", 5, 10), ("rows.cuh", 29, 1)])
    assert lines[1].text == "five" and lines[1].times is None and sum(lines[1].executed.values()) == 0


def test_the_line_of_a_call_that_was_inlined_does_not_stop_its_block():
    """Where a helper's line and the call's have one number, nvdisasm gives the call instructions of the helper."""
    call, helper = Place("k.cu", 9), Place("h.cuh", 9)
    code = machine_code.Code([machine_code.Instruction(0, "FADD", (), "", (), 0)] * 3)
    result = SimpleNamespace(sites=[], places=lambda pcs: {})
    launch = SimpleNamespace(grid=(8,), block=(128,), _result=result)
    times = {helper: executed.Executed(32, 1024)}
    assert executions(code, [(call,), (call,), (helper, call)], launch, times, {}) == {0: 32}
    assert executions(code, [(call,), (call,), (helper,)], launch, times, {}) == {0: 0}


def test_a_statement_is_its_first_line():
    text = "void f(int a,\n       int b) {\n  x = a  // a comment;\n      + b;\n  for (;;)\n    y[0] =\n        2;\n#pragma unroll\n  z = 1;\n}"
    starts = {line: start.line for (_, line), start in statements({"k.cu": text}).items()}
    assert starts == {1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 6: 6, 7: 6, 8: 8, 9: 9, 10: 10}


def test_the_assembler_s_report_is_read(tmp_path):
    report = "".join(f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
                     f"ptxas info    : Function properties for {name}\n"
                     f"    {stack} bytes stack frame, {stack} bytes spill stores, {stack + 4} bytes spill "
                     "loads\n"
                     f"ptxas info    : Used {registers} registers, used 1 barriers, 256 bytes smem\n"
                     for name, registers, stack in (("_Z1kPfS_", 40, 0), ("_Z2kkPfS_", 50, 8),
                                                    ("_Z13laptop_markerIXadL_Z2kkPfS0_EEEvv", 4, 0)))
    found = toolkit._read_report(report, "nvcc 1", tmp_path)
    assert ((found.symbol, found.registers, found.stack, found.spill_stores, found.spill_loads,
             found.static_shared) == ("_Z2kkPfS_", 50, 8, 8, 12, 256))
    assert [(symbol, arch, figures["registers"]) for symbol, arch, figures in toolkit.entries_of(report)][:2] == [
        ("_Z1kPfS_", "sm_90", 40), ("_Z2kkPfS_", "sm_90", 50)]
    assert (toolkit._read_report(report.split("ptxas info    : Compiling entry function '_Z13")[0], "nvcc 1",
                                 tmp_path) is None)


def test_executions_per_line_are_exact(module):
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    with cuda.profile() as report:
        module["tile<64>"][1, 64](x, y, 2)
    counted = executed.by_line(report.launches[0]._result)
    assert counted[Place("source.cu", 6)].warps == 2                   # places are the source's own
    found, whole = {place.line: (e.warps, e.lanes) for place, e in counted.items()}, (2, 64)
    assert {line: found[line] for line in (6, 7, 8, 9, 13, 16)} == dict.fromkeys((6, 7, 8, 9, 13, 16), whole)
    assert found[11] == (2 * 64, 64 * 64) and found[10] == (2 * 65, 64 * 65)  # the loop's test runs once more
    assert found[14] == found[2] == (2, 32)                                        # every other lane
    assert found[17] == (2, 63)                                                    # lane 3 has left


def test_executions_of_a_diverged_warp_are_those_of_its_paths():
    mod = cuda.compile("__global__ void k(float* y) {\n"
                       "  int i = threadIdx.x;\n"
                       "  if (i % 4 == 0)\n"
                       "    y[i] = 1;\n"
                       "  else if (i % 4 == 1)\n"
                       "    y[i] = 2;\n"
                       "  for (int j = 0; j < i; ++j)\n"
                       "    y[i] += 1;\n"
                       "}")
    with cuda.profile() as report:
        mod.k[1, 32](np.zeros(32, np.float32))
    found = {p.line: (e.warps, e.lanes) for p, e in executed.by_line(report.launches[0]._result).items()}
    assert found[4] == (1, 8) and found[6] == (1, 8)
    assert found[8] == (31, 31 * 32 // 2)                    # 31 rounds, one lane fewer in each


def test_a_dict_in_code_and_tables_in_a_notebook(module, with_nvcc):
    found = cuda.inspect(module["tile<64>"], arch="sm_90", block=128)
    assert 8 <= found["registers"] <= 64 and found["static_shared"] == 256 and found["spill_stores"] == 0
    assert (found["occupancy"] == found["occupancy"] | {"blocks": 16, "warps": 64, "most_warps": 64,
                                                        "share": 1.0})
    assert "compiled" in str(found) and "modelled" in str(found) and "<table>" in found._repr_html_()
    assert found["compiler"].startswith("nvcc ") and "/" not in found["compiler"]


def test_block_and_shared_memory_come_from_the_launch(module, with_nvcc):
    assert cuda.inspect(module.add)["block"] == 96                          # __launch_bounds__
    assert cuda.inspect(module["tile<64>"])["block"] == 256
    configured = cuda.inspect(module["tile<64>"][1, (16, 2), 49152])
    assert (configured["block"], configured["dynamic_shared"]) == (32, 49152)
    assert configured["occupancy"]["limited_by"] == "shared memory"
    with cuda.profile() as report:
        module["tile<64>"][1, 64](np.ones(64, np.float32), np.zeros(64, np.float32), 2)
    launched = cuda.inspect(module["tile<64>"], launch=report.launches[0])
    assert (launched["block"], launched["static_shared"], launched["dynamic_shared"]) == (64, 256, 0)


@pytest.mark.slow
def test_several_architectures_are_one_table(module, with_nvcc):
    found = cuda.inspect(module.add, arch=("sm_80", "sm_120"))
    assert list(found) == ["sm_80", "sm_120"] and found["sm_80"]["arch"] == "sm_80"
    assert str(found).count("sm_") == 2 and "<table>" in found._repr_html_()


@pytest.mark.slow
def test_registers_are_those_in_the_machine_code(module, with_nvcc):
    """The machine code holds the count too; the table's comes from the assembler's report."""
    for arch in ("sm_80", "sm_90", "sm_120"):
        for kernel in (module.add, module["tile<32>"], module["tile<1024>"]):
            made = toolkit.compiled(kernel, arch)
            assert made.registers == registers_in(made.cubin, made.symbol), (arch, kernel)


def registers_in(cubin: Path, symbol: str) -> int:
    """From the ELF file: an entry of .nv.info is 04 2f 08 00, the symbol's number, its registers."""
    raw = cubin.read_bytes()
    start, = struct.unpack_from("<Q", raw, 40)
    size, count, names = struct.unpack_from("<HHH", raw, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", raw, start + i * size) for i in range(count)]
    text = lambda table, at: raw[table[4] + at:raw.index(b"\0", table[4] + at)].decode()
    by_name = {text(sections[names], s[0]): s for s in sections}
    symbols, info = by_name[".symtab"], by_name[".nv.info"]
    called = [text(by_name[".strtab"], struct.unpack_from("<I", raw, symbols[4] + at)[0])
              for at in range(0, symbols[5], 24)]
    counts = re.findall(rb"\x04\x2f\x08\x00(.{4})(.{4})", raw[info[4]:info[4] + info[5]], re.S)
    found = {called[int.from_bytes(index, "little")]: int.from_bytes(registers, "little")
             for index, registers in counts}
    return found[symbol]


def test_every_instruction_has_its_line_and_the_lines_sum_to_the_launch(module, with_disassembler):
    with cuda.profile() as report:
        module["tile<64>"][2, 64](np.ones(128, np.float32), np.zeros(128, np.float32), 2)
    launch = report.launches[0]
    found = cuda.inspect(module["tile<64>"], launch=launch)
    assert sum(len(line.sass) for line in found.lines) == sum(found["instructions"].values())
    counted = [one for line in found.lines for one in line.counted]
    assert sum(c.global_load.requests for c in counted) == launch.global_load.requests == 4
    assert sum(c.shared_load.wavefronts for c in counted) == launch.shared_load.wavefronts
    assert found["executed"]["global load"] == 4 and found["executed"]["shared store"] == 4
    # 64 values per thread, four per load where the compiler widens them: 16 to 64 loads by each of 4 warps
    assert 4 * 16 <= found["executed"]["shared load"] <= 4 * 64
    assert 4 * 64 <= found["executed"]["FP32"] <= 4 * 70
    assert "<details>" in found._repr_html_() and "LDG" in found._repr_html_()
    assert any("unrolled" in note for line in found.lines for note in line.notes)


def test_spills_are_found(with_nvcc):
    body = "".join(f"    float a{i} = x[{i} * n + t];\n" for i in range(60))
    body += ("    for (int j = 0; j < n; ++j) {\n"
             + "".join(f"        a{i} = a{i} * x[j] + a{(i * 7 + 1) % 60};\n" for i in range(60)))
    source = ("__global__ void __launch_bounds__(1024, 2) k(const float* x, float* y, int n) {\n"
              "    int t = threadIdx.x;\n" + body + "    }\n"
              "    y[t] = " + " + ".join(f"a{i}" for i in range(60)) + ";\n}\n")
    found = cuda.inspect(cuda.compile(source).k)
    assert (found["registers"] <= 32 and found["spill_stores"] > 0 and found["spill_loads"] > 0
            and found["stack"] > 0)


CARD = {"name": "a card", "arch": "sm_90", "multiprocessors": 100, "clock_ghz": 1.0, "fp32_lanes": 128,
        "tensor_tflops": 100, "memory_gb_per_s": 1000}


def test_the_bound_of_each_pipe_is_work_by_rate(module):
    with cuda.profile() as report:
        module["tile<64>"][2, 64](np.ones(128, np.float32), np.zeros(128, np.float32), 2)
    launch = report.launches[0]
    inside = {"arch": "sm_90", "executed": {"FP32": 400_000, "special": 10_000, "integer": 90_000},
              "tensor_flops": 10**9}
    found = roofline.bound(CARD, inside, launch)
    by_pipe = {p["pipe"]: p["microseconds"] for p in found["pipes"]}
    # 100 multiprocessors at 1 GHz: 100,000 cycles per microsecond
    assert by_pipe["issuing instructions"] == 500_000 / 4 / 100_000
    assert (by_pipe["FP32"] == 400_000 * 32 / 128 / 100_000 and by_pipe["exponentials, reciprocals"] == 10_000
            * 2 / 100_000)
    assert by_pipe["tensor cores"] == 10.0 and found["binds"] == "tensor cores"
    assert (by_pipe["memory, each sector once"] == (launch.global_load.unique + launch.global_store.unique)
            / 1e6)
    assert (by_pipe["shared memory"] == (launch.shared_load.wavefronts + launch.shared_store.wavefronts)
            / 100_000)


def test_a_bound_says_what_it_lacks(module):
    with pytest.raises(ValueError, match="card: its data sheet lacks memory_gb_per_s"):
        roofline.bound({"name": "a", "arch": "sm_90"}, {"arch": "sm_90"}, None)
    with pytest.raises(ValueError, match="a card is sm_90; the kernel was built for sm_80"):
        roofline.bound(CARD, {"arch": "sm_80"}, None)
    with pytest.raises(ValueError, match="pass launch="):
        roofline.bound(CARD, {"arch": "sm_90a"}, None)


# Bad input: one line each.
def test_counts_of_narrow_warps_are_not_mixed_with_a_card(module):
    with cuda.profile(machine=cuda.Machine(warp_size=16)) as report:
        module.add[1, 64](np.zeros(64, np.float32), np.zeros(64, np.float32))
    with pytest.raises(ValueError, match="counted with warps of 16 lanes; those of a card have 32"):
        cuda.inspect(module.add, launch=report.launches[0])


@pytest.mark.parametrize("ask, said", [
    (lambda m: cuda.inspect(m["tile<64>"], arch="sm_20"), "arch: this nvcc does not know sm_20"),
    (lambda m: cuda.inspect(m.add, arch="hopper"), "arch: an architecture is named like sm_90, got 'hopper'"),
    (lambda m: cuda.inspect(m.tile), "tile is a template over <int N>: name an instance"),
    (lambda m: cuda.inspect(m["tile<64, 3>"]), "gives 2 arguments"),
    (lambda m: cuda.inspect("add"), "inspect takes a kernel, such as mod.name"),
    (lambda m: cuda.inspect(m["tile<100000>"]), "does not compile for sm_90: .*shared data")])
def test_bad_input_is_one_line(module, with_nvcc, ask, said):
    with pytest.raises(ValueError, match=said) as caught:
        ask(module)
    assert "\n" not in str(caught.value)


def test_a_kernel_that_does_not_compile_there_names_its_line(with_nvcc):
    mod = cuda.compile("__global__ void k(float* x) {\n"
                       "#if __CUDA_ARCH__ == 900\n"
                       "    x[0] = missing;\n"
                       "#endif\n"
                       "}\n")
    with pytest.raises(InspectError,
                       match=r"k does not compile for sm_90: line 3: identifier .missing. is undefined"):
        cuda.inspect(mod.k)
    assert cuda.inspect(mod.k, arch="sm_80")["registers"]


def test_without_a_compiler_one_line_says_how_to_get_it(module, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "nvcc", lambda: None)
    (tmp_path / "prog.cu").write_text(SOURCE)
    assert main(["inspect", str(tmp_path / "prog.cu")]) == 2
    assert (said := capsys.readouterr().err).count("\n") == 1 and "pip install" in said
    with pytest.raises(InspectError, match=r'nvcc was not found.*pip install "\.\[inside\]"') as caught:
        cuda.inspect(module.add)
    assert caught.value._render_traceback_() == [f"InspectError: {caught.value}"]


def test_without_a_disassembler_the_rest_is_shown(module, with_nvcc, monkeypatch):
    monkeypatch.setattr(toolkit, "nvdisasm", lambda: None)
    found = cuda.inspect(module.add)
    assert found["registers"] and "instructions" not in found and 'pip install ".[inside]"' in str(found)


@pytest.mark.slow
def test_the_command_shows_every_kernel_of_a_file(tmp_path, capsys, with_nvcc):
    file = tmp_path / "prog.cu"
    file.write_text(SOURCE + "void go(float* x) { tile<32><<<1, 32>>>(x, x, 1); }\n"
                             "int main() { return 0; }\n")
    assert main(["inspect", str(file), "--arch", "sm_80,sm_90"]) == 0
    shown = capsys.readouterr().out
    assert "add, 96 threads per block" in shown and "tile<32>, 256 threads per block" in shown
    assert main(["inspect", str(file), "--kernel", "nothing"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["inspect", str(file), "--kernel", "add", "--arch", "sm_20"]) == 1
    assert "does not know sm_20" in capsys.readouterr().err


def test_instances_that_host_code_launches_are_found(module):
    class Module:
        _texts, source = module._texts, "tile< 64 ><<<1, 2>>>(x); tile<32><<<1, 1>>>(x); other<3><<<1, 1>>>(x);"
    assert inspect_command._kernels(Module) == ["add", "tile<64>", "tile<32>"]


@pytest.mark.slow
def test_the_machine_code_of_every_kernel_is_read(with_disassembler):
    """Each instance that a card would launch: its registers, and every instruction of a known kind."""
    from course_lib.gpu.build import architectures, instances
    from course_lib.gpu.cases import CASES
    seen = 0
    for launch in instances(CASES).values():
        kernel = launch.module[launch.name] if "<" in launch.name else getattr(launch.module, launch.name)
        made = toolkit.compiled(kernel, architectures(launch.module.path)[-1])
        code = machine_code.read(toolkit.disassembled(made), made.symbol)
        assert made.registers == registers_in(made.cubin, made.symbol), launch.name
        assert len(code.instructions) > 10 and any(i.name == "EXIT" for i in code.instructions), launch.name
        assert {i.name for i in code.instructions if i.kind == "other"} == set(), launch.name
        assert all(i.flops for i in code.instructions if i.kind == "tensor"), launch.name
        assert sum(not i.places for i in code.instructions) <= 0.1 * len(code.instructions), launch.name
        seen += 1
    assert seen > 100


@pytest.mark.slow
@pytest.mark.parametrize("rung, loads", [(1, 1.0), (2, 1.0), (5, 0.7), (6, 0.45)])
def test_flash_attention_executes_the_loads_that_were_counted(rung, loads, with_disassembler):
    """Modelled loads beside counted requests, and the formula's products: 2 n^2 d fused multiply-adds."""
    import torch

    from course_lib import cuda as course_cuda
    from course_lib.flash_attention.kernels import forward_kernel
    n, d = 128, 64
    with course_cuda.profile() as report:
        forward_kernel(*(torch.randn(1, 1, n, d) for _ in range(3)), rung=rung)
    module = course_cuda.load("flash_attention")
    products = 0
    for launch in report.launches:
        kernel = module[launch.kernel] if "<" in launch.kernel else getattr(module, launch.kernel)
        found = course_cuda.inspect(kernel, launch=launch)
        counted = launch.global_load.requests
        assert counted <= found["executed"]["global load"] <= 1.02 * counted / loads, launch.kernel
        if shared := launch.shared_load.requests:
            assert 0.5 * shared <= found["executed"]["shared load"] <= shared, launch.kernel
        products += found["executed"]["FP32"]
    assert 2 * n * n * d / 32 <= products <= 4 * n * n * d / 32


def test_the_data_sheets_agree_with_themselves():
    """FP32 peak = 2 x lanes x multiprocessors x clock, for every card that gives them."""
    import json

    from laptop_cuda.occupancy import LIMITS
    cards = json.loads((ROOT / "data" / "cards.json").read_text())
    assert len(cards) == 8
    for name, card in cards.items():
        assert card["source"] and card["arch"] in LIMITS and card["memory_gb_per_s"] > 0, name
        if "multiprocessors" in card:
            peak = 2e-3 * card["fp32_lanes"] * card["multiprocessors"] * card["clock_ghz"]
            assert abs(peak / card["fp32_tflops"] - 1) < 0.01, (name, peak)


@pytest.mark.slow
def test_the_tensor_cores_execute_the_products_of_the_formula(with_disassembler):
    """4 n^2 d operations for one head, of a kernel whose products are inline PTX in nested helpers."""
    import torch

    from course_lib import cuda as course_cuda
    from course_lib.flash_attention.kernels import forward_kernel
    n, d = 128, 64
    with course_cuda.profile() as report:
        forward_kernel(*(torch.randn(1, 1, n, d, dtype=torch.bfloat16) for _ in range(3)), rung=7)
    launch, = report.launches
    found = course_cuda.inspect(course_cuda.load("flash_attention/tensor_core")[launch.kernel], launch=launch)
    assert found["tensor_flops"] == 4 * n * n * d and found["as_compiled"]["shared load"] is None, "in helpers"


@pytest.mark.slow
def test_host_code_of_cublas_is_left_out_of_an_included_file(tmp_path, needs):
    needs("nvcc")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "common.h").write_text("""#include <cublas_v2.h>
static cublasHandle_t handle;
inline void start() { cublasCreate(&handle); }
__device__ inline float twice(float x) { return 2.0f * x; }
""")
    (tmp_path / "a.cu").write_text("""#include "more/common.h"
__global__ void doubled(float* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
int main() { start(); doubled<<<1, 32>>>(nullptr); }
""")
    assert cuda.inspect(cuda.load(tmp_path / "a.cu").doubled, "sm_90")["registers"] > 0
