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
          grid="(n + 255) // 256", block=256, arrays={}, shared=0, within={}, seconds=10, std="c++17", **_):
    text = f"{before}\n__global__ void kernel({parameters}) {{\n{source}\n}}"
    return prove((text, "kernel", None, (), (), std), sizes, grid, block, arrays or {"a": "n", "b": "n", "c": "n"}, shared=shared,
                 within=within, seconds=seconds)


def some(of):
    """Every fourth in the quick suite, for changes elsewhere; the others in the slow one."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (n % 4 > 0)) for n, name in enumerate(KERNELS[of])]


def verdicts(**kernel):
    return {f.claim: f.verdict for f in proof(**kernel).findings}


@pytest.mark.parametrize("name", some("wrong"))
def test_a_wrong_kernel_is_not_proved(name):
    assert verdicts(**KERNELS["wrong"][name])[KERNELS["wrong"][name]["breaks"]] != "proved"


@pytest.mark.parametrize("name", some("right"))
def test_a_right_kernel_is_not_refuted(name):
    found = verdicts(**KERNELS["right"][name])
    found.pop("banks", None)
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
    from laptop_cuda.proofs.claims import Finding
    from laptop_cuda.proofs.solve import Solver, Undecided
    from laptop_cuda.proofs.terms import World

    class Slow(Solver):
        def ask(self, formulas, seconds, *more):
            found = super().ask(formulas, seconds, *more)
            until = time.process_time() + self.seconds
            while time.process_time() < until:
                pass
            return found if len(formulas) > 2 else z3.unknown

    world = World()
    n = world.new("n", 0)
    with pytest.raises(Undecided):
        Slow(world, [n >= 1000], {"n": n}, 0.01).example([n >= 2000])
    assert Finding("inside", "not decided", line=3, seconds=10).said() == "not decided in 10 s, line 3"


@pytest.mark.parametrize("name", some("banks"))
def test_conflicts_are_those_that_the_engine_counts(name):
    """The verdict, and the passes that are lost at some sizes."""
    told, block = KERNELS["banks"][name], KERNELS["banks"][name].get("block", 32)
    found = proof("int n", "", told["source"], {"n": (1, 40)}, 1, block, {"a": "n"}, 48000, seconds=60).findings[-1]
    assert (found.claim, found.verdict) == ("banks", told["verdict"]), found.said()
    kernel, lost = laptop_cuda.compile(f"__global__ void kernel(int n) {{ {told['source']} }}").kernel, {}
    for n in {1, 2, 5, 16, 32, 33, 40, *found.sizes.values()}:
        with laptop_cuda.profile() as report:
            kernel[1, block, 48000](n)
        lost[n] = report.launches[0].shared_load.excess + report.launches[0].shared_store.excess
    if found.verdict == "proved":
        assert not any(lost.values())
    if found.verdict == "fails":
        assert lost[found.sizes["n"]] and not (found.smallest and any(lost[n] for n in lost if n < found.sizes["n"]))


def test_a_conflict_that_is_found_is_counted():
    text = "__global__ void kernel(int n) { __shared__ float s[32][32]; s[threadIdx.x][n % 32] = 1; }"
    found = prove(laptop_cuda.compile(text).kernel, {"n": (3, 2**20)}, 1, 32)
    assert found.proved and not found.conflict_free and not found.failure
    assert "lanes 0 and 1 of warp 0, bytes 12 and 140 of s, a store" in str(found)
    assert "s[...][33]" in found.run()
