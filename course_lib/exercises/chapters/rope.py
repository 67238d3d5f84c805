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

ROTATE = '''
def rotate(x, angles):
    """x (n, d), angles (n, d / 2) in radians -> (n, d): entries 2i and 2i + 1 are a pair"""
    a, b = x[:, 0::2], x[:, 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(1)
'''

exercise(id="2.1", title="Turn each pair", kind="write", points=2, minutes=8, difficulty=2, card=r"""
    Write `rotate(x, angles)`. Entries $2i$ and $2i + 1$ of row $r$ are a point $(a, b)$ in the plane; turn it counter-clockwise by
    the angle $\theta$ = `angles[r, i]`:

    $$(a, b) \mapsto (a \cos\theta - b \sin\theta,\; a \sin\theta + b \cos\theta).$$
    """, given={"torch": torch}, solution=ROTATE, cases=rotate_cases, compare=close(atol=1e-5),
    properties=[("lengths are kept", lambda got, case: bool((got.norm(dim=-1) - case.args[0].norm(dim=-1)).abs().max() < 1e-4))],
    misconceptions=[
        Misconception("turns clockwise", change=[("a * cos - b * sin", "a * cos + b * sin"), ("a * sin + b * cos", "b * cos - a * sin")],
                      ask="Where does the point (1, 0) go after a quarter turn counter-clockwise: to (0, 1) or to (0, -1)?"),
        Misconception("uses the new first entry to compute the second",
                      change=("return torch.stack([a * cos - b * sin, a * sin + b * cos], -1)",
                              "a = a * cos - b * sin\n    return torch.stack([a, a * sin + b * cos], -1)"),
                      ask="When you compute the second entry, is `a` still the old one?"),
        Misconception("takes the angles for degrees", change=("angles.cos(), angles.sin()", "angles.deg2rad().cos(), angles.deg2rad().sin()"),
                      ask="In which unit are the angles, and in which does `cos` want them?"),
        Misconception("writes over the first entries while it still needs them", body='''
            a, b = x[:, 0::2], x[:, 1::2]
            cos, sin = angles.cos(), angles.sin()
            x[:, 0::2] = a * cos - b * sin
            x[:, 1::2] = a * sin + b * cos
            return x
            ''', ask="`x[:, 0::2]` is a view: it shows what `x` holds now. Which value does your second line read?"),
        Misconception("pairs entry i with entry i + d/2", code=ROTATE.replace(
            "x[:, 0::2], x[:, 1::2]", "*x.chunk(2, -1),").replace("torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(1)",
                                                                  "torch.cat([a * cos - b * sin, a * sin + b * cos], -1)"),
                      ask="That is the other layout. Which two entries are neighbours here?"),
        Misconception("puts all first entries before all second ones", change=(
            "torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(1)",
            "torch.cat([a * cos - b * sin, a * sin + b * cos], -1)"),
                      ask="The pairs were taken from places 2i and 2i + 1. Are they put back there?")],
    hints=["`x[:, 0::2]` is every first entry of a pair, `x[:, 1::2]` every second.",
           "`torch.stack([first, second], -1)` has shape (n, d/2, 2); flatten its last two axes."])


exercise(id="2.2", title="The slowest pair", kind="predict", points=1, minutes=4, difficulty=2, card=r"""
    With `head_dim` 64 and base 10,000, pair $i$ turns by $\theta_i = 10000^{-2i/64}$ radians per position, for $i = 0, \dots, 31$. After how many
    positions has the **slowest** pair made one full turn? Type a number; 1 % either way will do.
    """, name="positions", answer=2 * math.pi * 10000 ** (62 / 64), rtol=0.01, given={"math": math}, misconceptions=[
        Misconception("leaves out the 2 of the exponent", value=2 * math.pi * 10000 ** (31 / 64),
                      ask="The exponent of pair i is 2i / 64. What is it for i = 31?"),
        Misconception("counts until the angle is one radian, not one turn", value=10000 ** (62 / 64),
                      ask="How many radians are a full turn?"),
        Misconception("takes the frequency of a pair that does not exist, i = 32", value=2 * math.pi * 10000,
                      ask="There are 32 pairs and the first is number 0. What is the number of the last?"),
        Misconception("takes the fastest pair", value=2 * math.pi, ask="Which pair has the smallest angle per position: the first or the last?"),
        Misconception("thinks in degrees", value=360 * 10000 ** (62 / 64), ask="In which unit is theta?")],
    hints=["The slowest pair is the last one, $i = 31$.", r"It turns by $\theta_{31}$ per position, and a full turn is $2\pi$."])


def angle_cases(rng):
    yield Case(3, 4, 100.0, label="3 positions, head_dim 4, base 100")
    yield Case(1, 2, 10000.0, label="one position, one pair")
    yield Case(5, 64, 10000.0, label="5 positions, head_dim 64")
    yield Case(3000, 32, 500000.0, label="3,000 positions, base 500,000")
    n, d, base = whole(rng, 2, 90), 2 * whole(rng, 2, 40), 1000.0 * whole(rng, 2, 900)
    yield Case(n, d, base, label=f"{n} positions, head_dim {d}, base {base:,.0f}")

exercise(id="2.3", title="The table of angles", kind="write", points=2, minutes=7, difficulty=2, card=r"""
    Write `angle_table(n, head_dim, base)`: row $p$, column $i$ is the angle $p \cdot \text{base}^{-2i/d}$ by which pair $i$ is turned at
    position $p$, where $d$ is `head_dim`.

    - positions are $0, \dots, n - 1$, pairs $0, \dots, d/2 - 1$
    - with `n` 3, `head_dim` 4 and base 100 the frequencies are 1 and 0.1, and the rows `[0, 0]`, `[1, 0.1]`, `[2, 0.2]`
    - the result is float32
    """, given={"torch": torch}, stub='''
    def angle_table(n, head_dim, base):
        """-> (n, head_dim / 2), radians"""
        raise NotImplementedError
    ''', solution='''
    def angle_table(n, head_dim, base):
        """row p, column i: the angle in radians by which pair i is turned at position p"""
        frequencies = base ** -(torch.arange(0, head_dim, 2) / head_dim)
        return torch.arange(n)[:, None] * frequencies
    ''', cases=angle_cases, compare=close(atol=1e-3, rtol=1e-4), misconceptions=[
        Misconception("counts positions from 1", change=("torch.arange(n)[:, None]", "torch.arange(1, n + 1)[:, None]"),
                      ask="By what angle is the first token turned?"),
        Misconception("leaves out the 2 of the exponent", change=("torch.arange(0, head_dim, 2)", "torch.arange(head_dim // 2)"),
                      ask="The exponent of pair i is 2i / d. What is it for the last of d/2 pairs: nearly 1 or nearly 1/2?"),
        Misconception("divides 2i by the number of pairs", change=("/ head_dim)", "/ (head_dim // 2))"),
                      ask="What is d in 2i / d for a head of 64 entries: 64 or 32?"),
        Misconception("divides the frequency by d, and not the exponent", change=(
            "base ** -(torch.arange(0, head_dim, 2) / head_dim)", "base ** (-torch.arange(0, head_dim, 2).float()) / head_dim"),
                      ask="In base^(-2i/d) the d is part of the exponent. By what does pair 0 turn per position?"),
        Misconception("gives each entry a frequency of its own", change=("torch.arange(0, head_dim, 2)", "torch.arange(head_dim)"),
                      ask="Two entries form a pair and turn by one angle. How many angles does a head of width 4 need?"),
        Misconception("lets the frequencies grow", change=("base ** -(", "base ** ("),
                      ask="Pair 0 turns by 1 radian per position. Does pair 1 turn faster or more slowly?"),
        Misconception("reaches 1 / base exactly at the last pair", change=(
            "torch.arange(0, head_dim, 2) / head_dim", "torch.arange(head_dim // 2) / max(1, head_dim // 2 - 1)"),
                      ask="For d = 4 the exponents are 0 and 2/4. Where does your second one come from?"),
        Misconception("puts the pairs in the rows", change=("torch.arange(n)[:, None] * frequencies", "frequencies[:, None] * torch.arange(n)"),
                      ask="Row p of the table belongs to position p. What belongs to your row 1?"),
        Misconception("returns cosines", change=("return torch.arange(n)[:, None] * frequencies",
                                                 "return (torch.arange(n)[:, None] * frequencies).cos()"),
                      ask="The table is of angles, in radians. What is the angle at position 0?")],
    hints=["`torch.arange(0, head_dim, 2) / head_dim` are the exponents 2i / d.",
           "`positions[:, None] * frequencies` multiplies every position by every frequency."])


exercise(id="2.4", title="From one layout to the other", kind="write", points=2, minutes=9, difficulty=3, card="""
    The saved weights of a model (a *checkpoint*) were trained with interleaved pairs; your code rotates split halves. Write `reorder(weight, n_heads)`, which permutes the rows of a
    query or key projection so that the scores stay what they were.

    - within each head, row `2i` goes to place `i`, row `2i + 1` to place `i + head_dim / 2`
    - heads stay where they are
    - for two heads of 4, rows `0 1 2 3 4 5 6 7` become `0 2 1 3 4 6 5 7`
    """, given={"torch": torch}, solution='''
    def reorder(weight, n_heads):
        """(n_heads * head_dim, d_model), interleaved -> the same rows in the order of split halves"""
        pairs = weight.view(n_heads, -1, 2, weight.shape[1])
        return pairs.transpose(1, 2).reshape(weight.shape)
    ''', cases=lambda rng: [
        Case(torch.arange(8.0).view(8, 1), 2, label="2 heads of 4"),
        Case(randn(rng, 6, 5), 1, label="one head of 6"),
        Case(randn(rng, 24, 7), 3, label="3 heads of 8"),
        Case(randn(rng, 8, 3), 4, label="4 heads of 2")], compare=close(atol=0), misconceptions=[
        Misconception("goes the other way, from halves to interleaved", change=("view(n_heads, -1, 2, weight.shape[1])",
                                                                               "view(n_heads, 2, -1, weight.shape[1])"),
                      ask="Where should row 1 of a head of 4 end up: at place 1 or at place 2?"),
        Misconception("treats all rows as one head", change=("view(n_heads, -1, 2,", "view(1, -1, 2,"),
                      ask="May a row of head 0 move into head 1?"),
        Misconception("permutes the columns", body='''
            d = weight.shape[0] // n_heads
            order = torch.cat([torch.arange(0, d, 2), torch.arange(1, d, 2)])
            order = torch.cat([order + d * h for h in range(n_heads)]) % weight.shape[1]
            return weight[:, order[:weight.shape[1]]]
            ''', ask="Which axis of a projection's weight is the one that comes out of it, head by head?")],
    hints=["View the rows as (heads, pairs, 2): the last axis tells the two rows of a pair apart.",
           "Exchange the axes `pairs` and `2`, then give the tensor its old shape."])


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

kernel_exercise(id="2.5", title="Rotate in place", points=3, minutes=15, difficulty=3, name="rope_halves", card=r"""
    Write the kernel: rows of `x` (n, 2 · half) are rotated in place, split halves, one pair per thread. Pair `i` of a row is the entries `i` and
    `i + half`. Row `r` is at position `positions[r]`; `cos` and `sin` have `half` entries per position.

    - `grid = ceil(n * half / 64)`, `block = 64`: the last block is ragged
    - budget: `x` is read once and written once; a pair's cosine and sine are read once each (written twice in the code
      counts as two readings)
    """, stub='''
__global__ void rope_halves(float* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
                            const int* __restrict__ positions, int n, int half) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;      // one pair per thread
    // your code
}
''', solution='''
    __global__ void rope_halves(float* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
                                const int* __restrict__ positions, int n, int half) {
        int unit = blockIdx.x * blockDim.x + threadIdx.x;      // one pair per thread
        if (unit >= n * half) return;
        int row = unit / half, i = unit % half;
        float* first = x + row * 2 * half + i;
        float* second = first + half;
        int angle = positions[row] * half + i;
        float a = *first, b = *second, c = cos[angle], s = sin[angle];
        *first = a * c - b * s;
        *second = a * s + b * c;
    }
    ''', cases=kernel_cases, compare=close(atol=1e-5), expect=rotated_halves, launch=lambda x, cos, sin, positions: Launch(
        grid=math.ceil(x.numel() / 2 / 64), block=64,
        args=[inout(x), cos, sin, positions, x.shape[0], x.shape[1] // 2]),
    # x twice, a row of each table for every row of x, and the sectors of positions that each warp reads
    traffic=lambda x, cos, sin, positions: 8 * x.numel() + 4 * x.numel() + 32 * math.ceil(x.numel() / 64) * 2, misconceptions=[
        Misconception("looks the position up by the pair and not by the row", change=("positions[row]", "positions[unit]"),
                      ask="There are `n` positions. How many pairs are there?"),
        Misconception("turns clockwise", change=[("a * c - b * s", "a * c + b * s"), ("a * s + b * c", "b * c - a * s")],
                      ask="At an angle of 90 degrees (1, 0) should become (0, 1). What does yours become?"),
        Misconception("takes the row for the position", change=("positions[row] * half", "row * half"),
                      ask="At which position is the second case's first row: 0 or 5?"),
        Misconception("counts positions on from the first", change=("positions[row] * half", "(positions[0] + row) * half"),
                      ask="In the last case the first row is at position 33. Where is the second?"),
        Misconception("uses the new first entry to compute the second", change=("*second = a * s + b * c", "*second = *first * s + b * c"),
                      ask="`*first` has just been overwritten. Which value does the formula want?"),
        Misconception("writes the first entry of a pair, and reads it again for the second",
                      change=[("*first = a * c - b * s", "*first = *first * c - *second * s"),
                              ("*second = a * s + b * c", "*second = *first * s + *second * c")],
                      ask="What is in the first entry when your second line reads it?"),
        Misconception("reads each cosine and sine twice",
                      change=[(", c = cos[angle], s = sin[angle];", ";"), ("a * c - b * s", "a * cos[angle] - b * sin[angle]"),
                              ("a * s + b * c", "a * sin[angle] + b * cos[angle]")],
                      ask="Two entries of a pair need the same cosine. How often does your kernel load it?"),
        Misconception("takes the pairs of a row for its floats", change=("x + row * 2 * half + i", "x + row * half + i"),
                      ask="A row has `half` pairs and `2 * half` floats. By which do you count threads, by which places in x?"),
        Misconception("stops after as many threads as there are rows", change=("unit >= n * half", "unit >= n"),
                      ask="One pair per thread: how many pairs are to be turned in all?"),
        Misconception("pairs neighbours", change=[("x + row * 2 * half + i;", "x + row * 2 * half + 2 * i;"), ("first + half;", "first + 1;")],
                      ask="Those are interleaved pairs. Where is the partner of entry i when halves are paired?"),
        Misconception("lets threads past the last pair work", change=("    if (unit >= n * half) return;\n", ""),
                      ask="How many threads run in all, and how many pairs are there?"),
        Misconception("steps through the tables by the width of x", change=("positions[row] * half + i", "positions[row] * 2 * half + i"),
                      ask="How many entries does one position have in `cos`?")],
    hints=["`row = unit / half`, `i = unit % half`, after the guard `if (unit >= n * half) return;`.",
           "Load `x[row * 2 * half + i]` and the entry `half` further on into two variables before you write either.",
           "The angle's place in the tables is `positions[row] * half + i`."])


def rotated_pairs(x, angles):
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(1)

FAULTY_VECTOR = '''
__global__ void rope_pairs(float* __restrict__ x, const float* __restrict__ angles, int n, int pairs) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    int units_per_row = (pairs + 1) / 2;                  // two pairs per thread
    int row = unit / units_per_row, i = unit % units_per_row * 2;
    if (row >= n) return;
    float4* place = reinterpret_cast<float4*>(x + row * 2 * pairs + 2 * i);
    float4 v = *place;
    float c0 = cosf(angles[i]), s0 = sinf(angles[i]);
    float c1 = cosf(angles[i + 1]), s1 = sinf(angles[i + 1]);
    *place = make_float4(v.x * c0 - v.y * s0, v.x * s0 + v.y * c0, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1);
}
'''

kernel_exercise(id="2.6", title="Fast, for some widths", points=3, minutes=8, difficulty=3, name="rope_pairs", kind="repair",
    card="""
    This kernel moves two pairs at a time, as `float4`. It is right for rows of 4 and of 64, and not for rows of 6. Repair it so that it is right for
    **every even width**. It may move one pair at a time, as `float2`. The check runs it under the sanitizer and shows what it says.

    - `n` rows of `2 * pairs` entries; entries `2i` and `2i + 1` of each row are turned by `angles[i]`
    - the launch has a thread for every pair
    """, stub=FAULTY_VECTOR, solution='''
    __global__ void rope_pairs(float* __restrict__ x, const float* __restrict__ angles, int n, int pairs) {
        int unit = blockIdx.x * blockDim.x + threadIdx.x;
        int row = unit / pairs, i = unit % pairs;
        if (row >= n) return;
        float2* place = reinterpret_cast<float2*>(x + row * 2 * pairs + 2 * i);
        float2 v = *place;
        float c = cosf(angles[i]), s = sinf(angles[i]);
        *place = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
    }
    ''', cases=lambda rng: [
        Case(randn(rng, 1, 4), randn(rng, 2), label="one row of 4"),
        Case(randn(rng, 2, 6), randn(rng, 3), label="2 rows of 6"),
        Case(randn(rng, 5, 10), randn(rng, 5), label="5 rows of 10")], compare=close(atol=1e-5), expect=rotated_pairs,
    launch=lambda x, angles: Launch(grid=math.ceil(x.numel() / 2 / 32), block=32,
                                    args=[inout(x), angles, x.shape[0], len(angles)]), misconceptions=[
        Misconception("leaves the last pair of a row out when it has no partner", code=FAULTY_VECTOR.replace(
            "(pairs + 1) / 2;", "pairs / 2;    ").replace("float4* place = reinterpret_cast<float4*>", "float* place = ").replace(
            "float4 v = *place;", "float4 v = make_float4(place[0], place[1], place[2], place[3]);").replace(
            "*place = make_float4(v.x * c0 - v.y * s0, v.x * s0 + v.y * c0, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1);",
            "place[0] = v.x * c0 - v.y * s0; place[1] = v.x * s0 + v.y * c0; place[2] = v.z * c1 - v.w * s1; place[3] = v.z * s1 + v.w * c1;"),
                      ask="Three pairs, two at a time: who turns the third?"),
        Misconception("takes the number of the thread for that of the pair in its row", change=("angles[i]", "angles[unit]"),
                      ask="Two rows of 6 have six pairs and three angles. Which angle turns the first pair of row 1?"),
        Misconception("moves one pair per thread and has the threads for half of them", change=(
            "int row = unit / pairs, i = unit % pairs", "int units_per_row = (pairs + 1) / 2, row = unit / units_per_row, i = unit % units_per_row"),
                      ask="A row of 6 has three pairs. How many threads does your row have, and which pair does none of them turn?"),
        Misconception("moves two pairs at a time and still runs over the end of a row", code=FAULTY_VECTOR.replace(
            "float4* place = reinterpret_cast<float4*>", "float* place = ").replace(
            "float4 v = *place;", "float4 v = make_float4(place[0], place[1], place[2], place[3]);").replace(
            "*place = make_float4(v.x * c0 - v.y * s0, v.x * s0 + v.y * c0, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1);",
            "place[0] = v.x * c0 - v.y * s0; place[1] = v.x * s0 + v.y * c0; place[2] = v.z * c1 - v.w * s1; place[3] = v.z * s1 + v.w * c1;"),
                      ask="In a row of 6, to which row do the third and fourth float of the second unit belong?")],
    hints=["The address of a `float4` must be a multiple of 16 bytes. Row 1 of a matrix with rows of 6 floats begins at byte 24.",
           "A row of 6 is three pairs. Two at a time leaves one over; one at a time never does.",
           "`float2` needs a multiple of 8 bytes, which every pair has."])


def base_cases(rng):
    yield Case(100.0, 4.0, 4, label="base 100, factor 4, head_dim 4")
    yield Case(10000.0, 4.0, 32, label="base 10,000, factor 4, head_dim 32")
    yield Case(10000.0, 8.0, 64, label="base 10,000, factor 8, head_dim 64")
    yield Case(500000.0, 1.0, 128, label="factor 1")
    yield Case(500000.0, 32.0, 128, label="base 500,000, factor 32, head_dim 128")
    base, factor, d = 1000.0 * whole(rng, 2, 900), whole(rng, 3, 20) / 2, 2 * whole(rng, 2, 60)
    yield Case(base, factor, d, label=f"base {base:,.0f}, factor {factor:g}, head_dim {d}")

exercise(id="2.7", title="The base that does the same", kind="write", points=2, minutes=9, difficulty=4, card=r"""
    The NTK-aware rule keeps the fastest pair ($i = 0$) and slows the slowest ($i = d/2 - 1$) by `factor`; in between, the slow-down
    grows geometrically. Replacing the base by a larger one does just that. Write `longer_base(base, factor, head_dim)`, which returns this base
    $b'$.

    - the slowest pair turns by $b^{-(d-2)/d}$ per position before, and by $1 / \text{factor}$ of that with $b'$
    - for base 100, factor 4 and `head_dim` 4 the answer is 1,600
    """, given={"math": math}, solution='''
    def longer_base(base, factor, head_dim):
        """-> a number"""
        return base * factor ** (head_dim / (head_dim - 2))
    ''', cases=base_cases, compare=close(atol=0, rtol=1e-9), misconceptions=[
        Misconception("multiplies the base by the factor", change=("factor ** (head_dim / (head_dim - 2))", "factor"),
                      ask="With your base for base 100, factor 4, head_dim 4: how much slower is the slowest pair, 4 times or 2 times?"),
        Misconception("turns the exponent over", change=("head_dim / (head_dim - 2)", "(head_dim - 2) / head_dim"),
                      ask="The exponent of the slowest pair is (d - 2) / d. To get the base alone, raise both sides to which power?"),
        Misconception("makes the base smaller", change=("base * factor", "base / factor"),
                      ask="Does a larger or a smaller base make the slow pairs slower?"),
        Misconception("uses the number of pairs for the width of the head", change=(
            "head_dim / (head_dim - 2)", "(head_dim / 2) / (head_dim / 2 - 2 + (head_dim == 4))"),
                      ask="In base^(-2i / d), is d the number of entries or the number of pairs?")],
    hints=["Write down what is wanted: $b'^{-(d-2)/d} = b^{-(d-2)/d} / \\text{factor}$.",
           "Raise both sides to the power $-d / (d - 2)$."])


exercise(id="2.9", title="Three coordinates", kind="write", points=2, minutes=7, difficulty=3, card="""
    A patch of a video has a time, a row and a column. Write `axes_angles(positions, axis_of_pair, frequencies)`: pair `i` turns by its own
    frequency times the coordinate `axis_of_pair[i]`.

    - `positions` is (n, axes), of integers or floats, `axis_of_pair` a list with one axis per pair, `frequencies` (pairs,); the result is (n, pairs)
    - for a patch at (1, 2), pairs `[0, 1]` and frequencies 1 and 0.1 the angles are 1 and 0.2
    """, given={"torch": torch}, solution='''
    def axes_angles(positions, axis_of_pair, frequencies):
        """(n, axes), a list, (pairs,) -> (n, pairs)"""
        return positions[:, axis_of_pair] * frequencies
    ''', cases=lambda rng: [
        Case(torch.tensor([[1, 2]]), [0, 1], torch.tensor([1.0, 0.1]), label="one patch at (1, 2), two pairs"),
        Case(torch.tensor([[5.0, 0.0, 3.0], [5.0, 1.0, 3.0]]), [0, 1, 2, 0, 1, 2], 10.0 ** -torch.arange(6).float() / 2,
             label="two patches of three coordinates, six pairs in turns"),
        Case(10 * randn(rng, 7, 3), [0, 0, 1, 1, 1, 2, 2, 2], 0.5 ** torch.arange(8).float(), label="7 patches, pairs in sections")],
    compare=close(atol=1e-4), misconceptions=[
        Misconception("picks the coordinates and forgets the frequencies", change=(" * frequencies", ""),
                      ask="Two pairs that belong to the same axis: by which angles do they turn?"),
        Misconception("cuts angles to integers where the positions are integers", change=(
            "positions[:, axis_of_pair] * frequencies", "(positions[:, axis_of_pair] * frequencies).to(positions.dtype)"),
                      ask="At (1, 2) pair 1 turns by 0.2. What becomes of 0.2 as an integer?"),
        Misconception("turns every pair by the first coordinate", change=("[:, axis_of_pair]", "[:, :1]"),
                      ask="Two patches in the same frame and different rows: does any of your angles differ?"),
        Misconception("adds up the coordinates", change=("[:, axis_of_pair]", ".sum(1, keepdim=True)"),
                      ask="Can the scores tell row 2, column 1 from row 1, column 2?"),
        Misconception("starts again with the fastest frequency on every axis", body='''
            number = [axis_of_pair[:i].count(a) for i, a in enumerate(axis_of_pair)]
            return positions[:, axis_of_pair] * frequencies[number]
            ''', ask="The frequencies belong to the pairs. Which frequency does pair 1 have?"),
        Misconception("deals the axes out in turns, whatever the list says", change=(
            "[:, axis_of_pair]", "[:, [i % positions.shape[1] for i in range(len(axis_of_pair))]]"),
                      ask="In the last case pairs 0 and 1 both belong to time. Which coordinate does your pair 1 take?")],
    hints=["`positions[:, [0, 1, 1]]` picks a column for each entry of the list, and may pick one twice.",
           "After that the shape is (n, pairs), which multiplies with (pairs,)."])
