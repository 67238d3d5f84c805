"""The exercises of chapter 2."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, inout, kernel_exercise, randn, whole


def rotate_cases(rng):
    angle = math.atan2(4, 3)                             # its cosine is 0.6, its sine 0.8
    yield Case(torch.tensor([[1.0, 0.0]]), torch.tensor([[angle]]), label="(1, 0), turned to (0.6, 0.8)")
    yield Case(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), torch.tensor([[angle, 0.0]]), label="two pairs, only the first turns")
    yield Case(randn(rng, 5, 6), 3 * randn(rng, 5, 3), label="5 rows of 6")
    yield Case(randn(rng, 1, 2), randn(rng, 1, 1), label="one pair")

exercise(id="2.1", cases=rotate_cases, compare=close(atol=1e-5),
    properties=[("lengths are kept", lambda got, case: bool((got.norm(dim=-1) - case.args[0].norm(dim=-1)).abs().max() < 1e-4))])


exercise(id="2.2", answer=2 * math.pi * 10000 ** (62 / 64), rtol=0.01, misconceptions=[
    Misconception("leaves out the 2 of the exponent", value=2 * math.pi * 10000 ** (31 / 64),
                  ask="The exponent of pair i is 2i / 64. What is it for i = 31?"),
    Misconception("counts until the angle is one radian, not one turn", value=10000 ** (62 / 64),
                  ask="How many radians are a full turn?"),
    Misconception("takes the frequency of a pair that does not exist, i = 32", value=2 * math.pi * 10000,
                  ask="There are 32 pairs and the first is number 0. What is the number of the last?"),
    Misconception("takes the fastest pair", value=2 * math.pi, ask="Which pair has the smallest angle per position: the first or the last?"),
    Misconception("thinks in degrees", value=360 * 10000 ** (62 / 64), ask="In which unit is theta?")])


def angle_cases(rng):
    yield Case(3, 4, 100.0, label="3 positions, head_dim 4, base 100")
    yield Case(1, 2, 10000.0, label="one position, one pair")
    yield Case(5, 64, 10000.0, label="5 positions, head_dim 64")
    yield Case(3000, 32, 500000.0, label="3,000 positions, base 500,000")
    n, d, base = whole(rng, 2, 90), 2 * whole(rng, 2, 40), 1000.0 * whole(rng, 2, 900)
    yield Case(n, d, base, label=f"{n} positions, head_dim {d}, base {base:,.0f}")

exercise(id="2.3", cases=angle_cases, compare=close(atol=1e-3, rtol=1e-4))


exercise(id="2.4", cases=lambda rng: [
    Case(torch.arange(8.0).view(8, 1), 2, label="2 heads of 4"),
    Case(randn(rng, 6, 5), 1, label="one head of 6"),
    Case(randn(rng, 24, 7), 3, label="3 heads of 8"),
    Case(randn(rng, 8, 3), 4, label="4 heads of 2")], compare=close(atol=0))


def kernel_cases(rng):
    def case(n, half, start, label, back=False):
        angles = (torch.arange(start + n + 2)[:, None] * 10.0 ** -torch.arange(half)).float()
        positions = torch.arange(start, start + n, dtype=torch.int32)
        return Case(randn(rng, n, 2 * half), angles.cos(), angles.sin(), positions.flip(0) if back else positions, label=label)

    yield case(2, 2, 0, "2 rows of 4")
    yield case(3, 4, 5, "3 rows of 8, positions from 5")
    yield case(33, 32, 1, "33 rows of 64, positions from 33 down to 1", back=True)

def rotated_halves(x, cos, sin, positions):
    a, b = x.chunk(2, -1)
    c, s = cos[positions.long()], sin[positions.long()]
    return torch.cat([a * c - b * s, a * s + b * c], -1)

kernel_exercise(id="2.5", cases=kernel_cases, compare=close(atol=1e-5), expect=rotated_halves,
    launch=lambda x, cos, sin, positions: Launch(
        grid=math.ceil(x.numel() / 2 / 64), block=64,
        args=[inout(x), cos, sin, positions, x.shape[0], x.shape[1] // 2]),
    # x twice, a row of each table for every row of x, and the sectors of positions that each warp reads
    traffic=lambda x, cos, sin, positions: 8 * x.numel() + 4 * x.numel() + 32 * math.ceil(x.numel() / 64) * 2)


def rotated_pairs(x, angles):
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(1)

kernel_exercise(id="2.6", cases=lambda rng: [
    Case(randn(rng, 1, 4), randn(rng, 2), label="one row of 4"),
    Case(randn(rng, 2, 6), randn(rng, 3), label="2 rows of 6"),
    Case(randn(rng, 5, 10), randn(rng, 5), label="5 rows of 10")], compare=close(atol=1e-5),
    expect=rotated_pairs, launch=lambda x, angles: Launch(grid=math.ceil(x.numel() / 2 / 32), block=32,
                                                          args=[inout(x), angles, x.shape[0], len(angles)]))


def base_cases(rng):
    yield Case(100.0, 4.0, 4, label="base 100, factor 4, head_dim 4")
    yield Case(10000.0, 4.0, 32, label="base 10,000, factor 4, head_dim 32")
    yield Case(10000.0, 8.0, 64, label="base 10,000, factor 8, head_dim 64")
    yield Case(500000.0, 1.0, 128, label="factor 1")
    yield Case(500000.0, 32.0, 128, label="base 500,000, factor 32, head_dim 128")
    base, factor, d = 1000.0 * whole(rng, 2, 900), whole(rng, 3, 20) / 2, 2 * whole(rng, 2, 60)
    yield Case(base, factor, d, label=f"base {base:,.0f}, factor {factor:g}, head_dim {d}")

exercise(id="2.7", cases=base_cases, compare=close(atol=0, rtol=1e-9))


exercise(id="2.9", cases=lambda rng: [
    Case(torch.tensor([[1, 2]]), [0, 1], torch.tensor([1.0, 0.1]), label="one patch at (1, 2), two pairs"),
    Case(torch.tensor([[5.0, 0.0, 3.0], [5.0, 1.0, 3.0]]), [0, 1, 2, 0, 1, 2], 10.0 ** -torch.arange(6).float() / 2,
         label="two patches of three coordinates, six pairs in turns"),
    Case(10 * randn(rng, 7, 3), [0, 0, 1, 1, 1, 2, 2, 2], 0.5 ** torch.arange(8).float(), label="7 patches, pairs in sections")],
    compare=close(atol=1e-4))
