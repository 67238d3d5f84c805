"""What the sanitizer does not look at twice is no finding: random programs, checked quickly and in full."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import mod  # noqa: F401
from laptop_cuda import launch

# Each step is (what, stride, offset, who): all threads, or one, touch shared or global memory, or meet.
SOURCE = """
#define SIZE 64
__global__ void play(const int* steps, int n, float* g, unsigned* flag, float* out) {
    __shared__ float s[SIZE];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        int what = steps[4 * k], place = (t * steps[4 * k + 1] + steps[4 * k + 2]) % SIZE, who = steps[4 * k + 3];
        if (what == 0) __syncthreads();
        if (what == 1) __syncwarp();
        if (who >= 0 && who != t) continue;
        if (what == 2) sum += s[place];
        if (what == 3) s[place] = t;
        if (what == 4) sum += g[place];
        if (what == 5) g[place] = t;
        if (what == 6) atomicAdd(&s[place], 1.0f);
        if (what == 7) { __threadfence(); atomicAdd(flag, 1u); }
        if (what == 8) sum += ((float2*)s)[place / 2].x;
        if (what == 9) s[place] = sum;
        if (what == 10 && t < 32) { if (t % 2) __syncwarp(0xaaaaaaaau); }
        if (what == 11) sum += ((volatile float*)s)[place];
        if (what == 12) break;
        if (what == 13 && t / 32) __syncthreads();
    }
    out[blockIdx.x * blockDim.x + t] = sum;
}
"""
KINDS, OFTEN = range(14), np.array([5, 5, 12, 1, 3, 0.3, 0.3, 0.3, 2, 0.5, 0.5, 0.5, 0.3, 0.2])


def steps_of(draw) -> np.ndarray:
    n = int(draw.integers(4, 30))
    what = draw.choice(KINDS, n, p=OFTEN / OFTEN.sum())
    who = np.where(draw.random(n) < 0.6, -1, draw.integers(0, 64, n))
    who[(what < 2) | (what == 10)] = -1
    made = np.stack([what, draw.choice([0, 1, 1, 2, 3, 32], n), draw.integers(0, 64, n), who], 1)
    filled = np.array([[3, 1, 0, -1], [0, 0, 0, -1]])  # as a rule each thread fills its own place first
    return np.concatenate([filled[:0 if draw.random() < 0.1 else 2], made]).astype(np.int32)


def outcome(mod, steps, order: str, seed: int) -> tuple:
    """The message and what it names, or the results and the notes."""
    g, flag, out = np.ones(64, np.float32), np.zeros(1, np.uint32), np.zeros(128, np.float32)
    try:
        with cuda.sanitize(order=order, seed=seed) as found:
            mod.play[2, 64](steps, len(steps), g, flag, out)
    except cuda.KernelError as error:
        return str(error), error.kind, error.line, error.block, error.thread
    return g.tobytes(), flag[0], out.tobytes(), str(found)


def compare(mod, monkeypatch, seeds) -> set[str]:
    kinds = set()
    for seed in seeds:
        draw = np.random.default_rng(seed)
        steps, order = steps_of(draw), ("forward", "reverse", "seeded")[seed % 3]
        quick = outcome(mod, steps, order, seed)
        with monkeypatch.context() as patched:
            # nothing is settled there
            patched.setitem(launch.MODES, "sanitize", launch.SANITIZE | launch.PROFILE)
            assert outcome(mod, steps, order, seed) == quick, (seed, steps.tolist())
        kinds.add(quick[1] if isinstance(quick[1], str) else "clean")
    return kinds


def test_quick_checks_say_what_full_ones_say(mod, monkeypatch):
    assert compare(mod, monkeypatch, range(40)) >= {"clean", "race"}


@pytest.mark.slow
def test_quick_checks_say_what_full_ones_say_of_a_thousand(mod, monkeypatch):
    assert compare(mod, monkeypatch, range(1000, 2000)) >= {
        "clean", "race", "uninitialized", "barrier divergence"}
