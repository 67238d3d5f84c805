"""No wrong kernel is proved, and what is proved of right ones."""
import time
import tomllib
from pathlib import Path

import pytest

import laptop_cuda
from laptop_cuda.arguments import ArgumentError
from laptop_cuda.proofs.proof import prove

z3 = pytest.importorskip("z3")
pytest.importorskip("clang.cindex")
KERNELS = tomllib.loads((Path(__file__).parent / "kernels.toml").read_text(encoding="utf-8"))


def proof(parameters="float* a, const float* b, const float* c, int n", before="", source="", sizes={"n": (1, 2**30)},
          grid="(n + 255) // 256", block=256, arrays={}, shared=0, within={}, seconds=10, **_):
    text = f"{before}\n__global__ void kernel({parameters}) {{\n{source}\n}}"
    return prove((text, "kernel"), sizes, grid, block, arrays or {"a": "n", "b": "n", "c": "n"}, shared=shared,
                 within=within, seconds=seconds)


def verdicts(**kernel):
    return {f.claim: f.verdict for f in proof(**kernel).findings}


@pytest.mark.parametrize("name", KERNELS["wrong"])
def test_a_wrong_kernel_is_not_proved(name):
    assert verdicts(**KERNELS["wrong"][name])[KERNELS["wrong"][name]["breaks"]] != "proved"


@pytest.mark.parametrize("name", KERNELS["right"])
def test_a_right_kernel_is_not_refuted(name):
    found = verdicts(**KERNELS["right"][name])
    assert "fails" not in found.values()
    assert [claim for claim, verdict in found.items() if verdict != "proved"] == KERNELS["right"][name].get("not_proved", [])


def test_a_counterexample_runs():
    text = "__global__ void kernel(float* a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i <= n) a[i] = 1; }"
    found = prove(laptop_cuda.compile(text).kernel, {"n": (3, 2**20)}, "(n + 63) // 64", 64, {"a": "n"})
    assert found.counterexample == {"n": 3}
    with pytest.raises(laptop_cuda.KernelError, match=r"a\[3\], past its end"):
        found.run()


def test_sizes_that_are_left_out_are_said():
    outside = proof(sizes={"n": (1, 2000)}, grid=1, block="n", source="a[threadIdx.x] = 1;")
    assert not outside.proved and "n = 1,025" in str(outside)
    for grid in ("2 if n == 7 else 1", "(n == 4 or n == 8) + 1", "(n in (4, 8)) + 1"):
        with pytest.raises(ArgumentError):
            proof(grid=grid)


def test_a_question_that_is_not_decided_is_no_proof():
    from laptop_cuda.proofs.solve import Solver, Undecided
    from laptop_cuda.proofs.terms import World

    class Slow(Solver):
        def ask(self, formulas, seconds, *more):
            found = super().ask(formulas, seconds, *more)
            time.sleep(max(0, self.seconds))
            return found if len(formulas) > 2 else z3.unknown

    world = World()
    n = world.new("n", 0)
    with pytest.raises(Undecided):
        Slow(world, [n >= 1000], {"n": n}, 0.01).example([n >= 2000])
