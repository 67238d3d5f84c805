"""The exercises of chapter 2."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, inout, kernel_exercise, whole


def randn(rng, *shape):
    return torch.randn(shape, generator=rng)


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

exercise(
    id="2.1", title="Turn each pair", kind="write", points=2, minutes=8, difficulty=2,
    card=r"""
    Write `rotate(x, angles)`. Entries $2i$ and $2i + 1$ of a row are a point $(a, b)$ in the plane; turn it counter-clockwise by
    the angle that belongs to it:

    $$(a, b) \mapsto (a \cos\theta - b \sin\theta,\; a \sin\theta + b \cos\theta).$$
    """,
    given={"torch": torch},
    stub='''
    def rotate(x, angles):
        """x (n, d), angles (n, d / 2) in radians -> (n, d): entries 2i and 2i + 1 are a pair"""
        raise NotImplementedError
    ''',
    solution=ROTATE, cases=rotate_cases, compare=close(atol=1e-5),
    properties=[("lengths are kept", lambda got, case: bool((got.norm(dim=-1) - case.args[0].norm(dim=-1)).abs().max() < 1e-4))],
    misconceptions=[
        Misconception("turns clockwise", change=[("a * cos - b * sin", "a * cos + b * sin"), ("a * sin + b * cos", "b * cos - a * sin")],
                      ask="Where does the point (1, 0) go after a quarter turn counter-clockwise: to (0, 1) or to (0, -1)?"),
        Misconception("uses the new first entry to compute the second", code=ROTATE.replace(
            "return torch.stack([a * cos - b * sin, a * sin + b * cos], -1)",
            "a = a * cos - b * sin\n    return torch.stack([a, a * sin + b * cos], -1)"),
                      ask="When you compute the second entry, is `a` still the old one?"),
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


exercise(
    id="2.2", title="The slowest hand of the clock", kind="predict", points=1, minutes=4, difficulty=2,
    card=r"""
    With `head_dim` 64 and base 10,000, pair $i$ turns by $\theta_i = 10000^{-2i/64}$ radians a position, for $i = 0, \dots, 31$. After how many
    positions has the **slowest** pair made one full turn? Type a number; 1 % either way will do.
    """,
    name="positions", answer=2 * math.pi * 10000 ** (62 / 64), rtol=0.01, given={"math": math},
    misconceptions=[
        Misconception("leaves out the 2 of the exponent", value=2 * math.pi * 10000 ** (31 / 64),
                      ask="The exponent of pair i is 2i / 64. What is it for i = 31?"),
        Misconception("counts until the angle is one radian, not one turn", value=10000 ** (62 / 64),
                      ask="How many radians are a full turn?"),
        Misconception("takes the frequency of a pair that does not exist, i = 32", value=2 * math.pi * 10000,
                      ask="There are 32 pairs and the first is number 0. What is the number of the last?"),
        Misconception("takes the fastest pair", value=2 * math.pi, ask="Which pair has the smallest angle a position: the first or the last?"),
        Misconception("thinks in degrees", value=360 * 10000 ** (62 / 64), ask="In which unit is theta?")],
    hints=["The slowest pair is the last one, $i = 31$.", r"It turns by $\theta_{31}$ a position, and a full turn is $2\pi$."])


exercise(
    id="2.3", title="One new word", kind="choose", points=1, minutes=4, difficulty=2,
    card="""
    A model writes its 101st word. The 100 old keys lie in a cache, rotated by positions 0 to 99. The new query and key are rotated by a
    call that leaves `positions` out. What do the new query's scores look like?
    """,
    name="scores", options={
        "a": "right: rotations are relative, so the starting point does not matter",
        "b": "as if the new word stood before all others: distances 0 to -99 in place of 100 to 1",
        "c": "as without any positions: a single word has no order",
        "d": "an error, because the table has more than one row"},
    answer="b",
    misconceptions=[
        Misconception("trusts relativity where only one side has moved", value="a",
                      ask="A score depends on the difference of two positions. Which two positions enter here?"),
        Misconception("expects a table to be as long as the text", value="d",
                      ask="A table has a row for each position that may occur. Which rows does a call for one word read?"),
        Misconception("takes position 0 for no position", value="c",
                      ask="The query is turned by angle 0, the keys are not. Is the angle between them then free of position?")],
    hints=["Left out, `positions` means 0, 1, 2, ... for the rows that are there. There is one row.",
           "The score depends on (position of key) - (position of query). Put in 0 for the query."])


def reorder_cases(rng):
    yield Case(torch.arange(8.0).view(8, 1), 2, label="2 heads of 4")
    yield Case(randn(rng, 6, 5), 1, label="one head of 6")
    yield Case(randn(rng, 24, 7), 3, label="3 heads of 8")
    yield Case(randn(rng, 8, 3), 4, label="4 heads of 2")


REORDER = '''
def reorder(weight, n_heads):
    """(n_heads * head_dim, d_model), interleaved -> the same rows in the order of split halves"""
    pairs = weight.view(n_heads, -1, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape)
'''

exercise(
    id="2.4", title="From one layout to the other", kind="write", points=2, minutes=9, difficulty=3,
    card="""
    A checkpoint was trained with interleaved pairs; your code rotates split halves. Write `reorder(weight, n_heads)`, which permutes the rows of a
    query or key projection so that the scores stay what they were.

    - within each head, row `2i` goes to place `i`, row `2i + 1` to place `i + head_dim / 2`
    - heads stay where they are
    - for two heads of 4, rows `0 1 2 3 4 5 6 7` come out as `0 2 1 3 4 6 5 7`
    """,
    given={"torch": torch},
    stub='''
    def reorder(weight, n_heads):
        """(n_heads * head_dim, d_model), interleaved -> the same rows in the order of split halves"""
        raise NotImplementedError
    ''',
    solution=REORDER, cases=reorder_cases, compare=close(atol=0),
    misconceptions=[
        Misconception("goes the other way, from halves to interleaved", change=("view(n_heads, -1, 2, weight.shape[1])",
                                                                               "view(n_heads, 2, -1, weight.shape[1])"),
                      ask="Where should row 1 of a head of 4 end up: at place 1 or at place 2?"),
        Misconception("treats all rows as one head", change=("view(n_heads, -1, 2,", "view(1, -1, 2,"),
                      ask="May a row of head 0 move into head 1?"),
        Misconception("permutes the columns", code='''
            def reorder(weight, n_heads):
                d = weight.shape[0] // n_heads
                order = torch.cat([torch.arange(0, d, 2), torch.arange(1, d, 2)])
                order = torch.cat([order + d * h for h in range(n_heads)]) % weight.shape[1]
                return weight[:, order[:weight.shape[1]]]
            ''', ask="Which axis of a projection's weight is the one that comes out of it, head by head?")],
    hints=["View the rows as (heads, pairs, 2): the last axis says which of the two a row is.",
           "Exchange the axes `pairs` and `2`, then give the tensor its old shape."])


def kernel_cases(rng):
    def case(n, half, start, label):
        angles = (torch.arange(start + n + 2)[:, None] * 10.0 ** -torch.arange(half)).float()
        positions = torch.arange(start, start + n, dtype=torch.int32)
        return Case(randn(rng, n, 2 * half), angles.cos(), angles.sin(), positions, label=label)

    yield case(2, 2, 0, "2 rows of 4")
    yield case(3, 4, 5, "3 rows of 8, positions from 5")
    yield case(33, 32, 1, "33 rows of 64, positions from 1")


def rotated_halves(x, cos, sin, positions):
    a, b = x.chunk(2, -1)
    c, s = cos[positions.long()], sin[positions.long()]
    return torch.cat([a * c - b * s, a * s + b * c], -1)


HALVES = '''
__global__ void rope_halves(float* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
                            const int* __restrict__ positions, int n, int half) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;      // one pair a thread
    if (unit >= n * half) return;
    int row = unit / half, i = unit % half;
    float* first = x + row * 2 * half + i;
    float* second = first + half;
    int angle = positions[row] * half + i;
    float a = *first, b = *second, c = cos[angle], s = sin[angle];
    *first = a * c - b * s;
    *second = a * s + b * c;
}
'''

kernel_exercise(
    id="2.5", title="Rotate in place", points=3, minutes=15, difficulty=3, name="rope_halves",
    card=r"""
    Write the kernel: rows of `x` (n, 2 · half) are rotated in place, split halves, one pair a thread. Pair `i` of a row is the entries `i` and
    `i + half`. Row `r` stands at position `positions[r]`; `cos` and `sin` have `half` entries a position.

    - `grid = ceil(n * half / 64)`, `block = 64`: the last block is ragged
    - budget: `x` is read once and written once
    """,
    stub='''
__global__ void rope_halves(float* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
                            const int* __restrict__ positions, int n, int half) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;      // one pair a thread
    // your code
}
''',
    solution=HALVES, cases=kernel_cases, compare=close(atol=1e-5), expect=rotated_halves,
    launch=lambda x, cos, sin, positions: Launch(
        grid=math.ceil(x.numel() / 2 / 64), block=64,
        args=[inout(x), cos, sin, positions, x.shape[0], x.shape[1] // 2]),
    # x twice, a row of each table for every row of x, and the sectors of positions that each warp reads
    traffic=lambda x, cos, sin, positions: 8 * x.numel() + 4 * x.numel() + 32 * math.ceil(x.numel() / 64) * 2,
    misconceptions=[
        Misconception("takes the row for the position", change=("positions[row] * half", "row * half"),
                      ask="Where does the second case's first row stand: at position 0 or at position 5?"),
        Misconception("uses the new first entry to compute the second", change=("*second = a * s + b * c", "*second = *first * s + b * c"),
                      ask="`*first` has just been overwritten. Which value does the formula want?"),
        Misconception("takes the pairs of a row for its floats", change=("x + row * 2 * half + i", "x + row * half + i"),
                      ask="A row has `half` pairs and `2 * half` floats. By which do you count threads, by which places in x?"),
        Misconception("stops after as many threads as there are rows", change=("unit >= n * half", "unit >= n"),
                      ask="One pair a thread: how many pairs are there in all?"),
        Misconception("pairs neighbours", change=[("x + row * 2 * half + i;", "x + row * 2 * half + 2 * i;"), ("first + half;", "first + 1;")],
                      ask="Those are interleaved pairs. Where is the partner of entry i when halves are paired?"),
        Misconception("forgets the ragged guard", change=("    if (unit >= n * half) return;\n", ""),
                      ask="How many threads run in all, and how many pairs are there?"),
        Misconception("steps through the tables by the width of x", change=("positions[row] * half + i", "positions[row] * 2 * half + i"),
                      ask="How many entries does one position have in `cos`?")],
    hints=["`row = unit / half`, `i = unit % half`, after the guard `if (unit >= n * half) return;`.",
           "Load `x[row * 2 * half + i]` and the entry `half` further on into two variables before you write either.",
           "The angle's place in the tables is `positions[row] * half + i`."])


def vector_cases(rng):
    yield Case(randn(rng, 1, 4), randn(rng, 2), label="one row of 4")
    yield Case(randn(rng, 2, 6), randn(rng, 3), label="2 rows of 6")
    yield Case(randn(rng, 5, 10), randn(rng, 5), label="5 rows of 10")


def rotated_pairs(x, angles):
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(1)


VECTOR = '''
__global__ void rope_pairs(float* __restrict__ x, const float* __restrict__ angles, int n, int pairs) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    int row = unit / pairs, i = unit % pairs;
    if (row >= n) return;
    float2* place = reinterpret_cast<float2*>(x + row * 2 * pairs + 2 * i);
    float2 v = *place;
    float c = cosf(angles[i]), s = sinf(angles[i]);
    *place = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
'''

FAULTY_VECTOR = '''
__global__ void rope_pairs(float* __restrict__ x, const float* __restrict__ angles, int n, int pairs) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    int units_a_row = (pairs + 1) / 2;                    // two pairs a thread
    int row = unit / units_a_row, i = unit % units_a_row * 2;
    if (row >= n) return;
    float4* place = reinterpret_cast<float4*>(x + row * 2 * pairs + 2 * i);
    float4 v = *place;
    float c0 = cosf(angles[i]), s0 = sinf(angles[i]);
    float c1 = cosf(angles[i + 1]), s1 = sinf(angles[i + 1]);
    *place = make_float4(v.x * c0 - v.y * s0, v.x * s0 + v.y * c0, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1);
}
'''

kernel_exercise(
    id="2.6", title="Fast, for some widths", points=3, minutes=8, difficulty=3, name="rope_pairs", kind="repair",
    card="""
    This kernel moves two pairs at a time, as `float4`. It is right for rows of 4 and of 64, and not for rows of 6. Repair it so that it is right for
    **every even width**. It may move one pair at a time, as `float2`. The check runs it under the sanitizer and shows what it says.

    - `n` rows of `2 * pairs` entries; the launch has a thread for every pair
    """,
    stub=FAULTY_VECTOR, solution=VECTOR, cases=vector_cases, compare=close(atol=1e-5), expect=rotated_pairs,
    launch=lambda x, angles: Launch(grid=math.ceil(x.numel() / 2 / 32), block=32,
                                    args=[inout(x), angles, x.shape[0], len(angles)]),
    misconceptions=[
        Misconception("leaves the last pair of a row out when it has no partner", code=FAULTY_VECTOR.replace(
            "(pairs + 1) / 2;", "pairs / 2;    ").replace("float4* place = reinterpret_cast<float4*>", "float* place = ").replace(
            "float4 v = *place;", "float4 v = make_float4(place[0], place[1], place[2], place[3]);").replace(
            "*place = make_float4(v.x * c0 - v.y * s0, v.x * s0 + v.y * c0, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1);",
            "place[0] = v.x * c0 - v.y * s0; place[1] = v.x * s0 + v.y * c0; place[2] = v.z * c1 - v.w * s1; place[3] = v.z * s1 + v.w * c1;"),
                      ask="Three pairs, two at a time: who turns the third?"),
        Misconception("loads four floats one by one and still runs over the end of a row", code=FAULTY_VECTOR.replace(
            "float4* place = reinterpret_cast<float4*>", "float* place = ").replace(
            "float4 v = *place;", "float4 v = make_float4(place[0], place[1], place[2], place[3]);").replace(
            "*place = make_float4(v.x * c0 - v.y * s0, v.x * s0 + v.y * c0, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1);",
            "place[0] = v.x * c0 - v.y * s0; place[1] = v.x * s0 + v.y * c0; place[2] = v.z * c1 - v.w * s1; place[3] = v.z * s1 + v.w * c1;"),
                      ask="In a row of 6, to which row do the third and fourth float of the second unit belong?")],
    hints=["A `float4` must lie at an address that is a multiple of 16 bytes. Row 1 of a matrix with rows of 6 floats begins at byte 24.",
           "A row of 6 is three pairs. Two at a time leaves one over; one at a time never does.",
           "`float2` needs a multiple of 8 bytes, which every pair has."])


def slow_cases(rng):
    yield Case(10000.0 ** -(torch.arange(2) / 2), 4.0, label="2 pairs, factor 4")
    yield Case(1000.0 ** -(torch.arange(3) / 3), 4.0, label="3 pairs, base 1,000, factor 4")
    yield Case(10000.0 ** -(torch.arange(32) / 32), 4.0, label="32 pairs, factor 4")
    yield Case(500000.0 ** -(torch.arange(16) / 16), 8.0, label="16 pairs, base 500,000, factor 8")
    for _ in range(2):
        pairs, base, factor = whole(rng, 2, 40), 1000 * whole(rng, 2, 900), whole(rng, 3, 20) / 2
        yield Case(float(base) ** -(torch.arange(pairs) / pairs), factor,
                   label=f"{pairs} pairs, base {base:,}, factor {factor:g}")


exercise(
    id="2.7", title="Slow the slow ones", kind="write", points=2, minutes=8, difficulty=3,
    card=r"""
    Write the NTK-aware rule: given the frequencies of all pairs (the first is the fastest), return new ones such that

    - the fastest keeps its frequency, the slowest turns `factor` times slower
    - in between, the slow-down grows geometrically: pair $i$ of $p$ turns $\text{factor}^{\,i/(p-1)}$ times slower
    """,
    given={"torch": torch},
    stub='''
    def ntk(frequencies, factor):
        """(pairs,), falling -> (pairs,)"""
        raise NotImplementedError
    ''',
    solution='''
    def ntk(frequencies, factor):
        """(pairs,), falling -> (pairs,)"""
        pairs = len(frequencies)
        return frequencies * factor ** -(torch.arange(pairs) / (pairs - 1))
    ''',
    cases=slow_cases, compare=close(atol=0, rtol=1e-5),
    misconceptions=[
        Misconception("slows every pair alike", code='''
            def ntk(frequencies, factor):
                return frequencies / factor
            ''', ask="That is position interpolation. What does it do to the pair that tells neighbours apart?"),
        Misconception("lets the slow-down grow in equal steps", change=(
            "frequencies * factor ** -(torch.arange(pairs) / (pairs - 1))", "frequencies / torch.linspace(1, factor, pairs)"),
                      ask="From 1 to 4 over three pairs: is the middle one slowed 2.5 times or 2 times?"),
        Misconception("never quite reaches the factor", change=("(pairs - 1)", "pairs"),
                      ask="By how much is the last pair, i = p - 1, slowed in your version?"),
        Misconception("slows the fast ones", change=("torch.arange(pairs)", "(pairs - 1 - torch.arange(pairs))"),
                      ask="Which pairs never made a full turn in training, and therefore meet new angles in a longer text?"),
        Misconception("speeds pairs up", change=("factor ** -(", "factor ** ("), ask="In a longer text, should angles grow faster or more slowly?")],
    hints=["`torch.arange(pairs) / (pairs - 1)` runs from 0 to 1.", "Multiply the frequencies by `factor ** -exponent`."])


exercise(
    id="2.8", title="A longer table", kind="choose", points=1, minutes=3, difficulty=1,
    card="""
    A public tip: "To let your model read 8,192 words where it was trained on 2,048, just build the table for 8,192." What happens?
    """,
    name="tip", options={
        "a": "it works: the formula holds for every position",
        "b": "it runs, and gets worse beyond 2,048: slow pairs reach angles that training never showed",
        "c": "an error, since the table does not fit the weights",
        "d": "it runs, and every word beyond 2,048 gets the position of the last"},
    answer="b",
    misconceptions=[
        Misconception("takes a formula for an education", value="a",
                      ask="The rotation is defined everywhere. Has the softmax after it ever seen such scores?"),
        Misconception("looks for the table among the weights", value="c",
                      ask="Which weight of a layer has a shape that depends on the length of the text?"),
        Misconception("mixes it up with a table whose last row is repeated", value="d",
                      ask="A table of 8,192 rows was asked for. Are two of them the same?")],
    hints=["Look at the figure of the loss by position: which line is the longer table?",
           "A pair that turned a tenth of a circle in training turns almost half a circle at four times the length."])


exercise(
    id="2.9", title="Fewer heads", kind="predict", points=1, minutes=3, difficulty=2,
    card="""
    Another tip: "Use fewer heads to shrink the KV cache." A layer of width 512 goes from 8 heads of 64 to 4 heads of 128, each head with its own keys and values.
    By what factor does its cache change? (1 means not at all, 0.5 half.)
    """,
    name="factor", answer=1, tolerance=1e-6,
    misconceptions=[
        Misconception("halves the number of heads and forgets that each is twice as wide", value=0.5,
                      ask="How many numbers are 8 keys of 64, and how many are 4 keys of 128?"),
        Misconception("doubles the width and forgets that there are half as many", value=2, ask="How many heads are left?")],
    hints=["A token keeps one key and one value for each head.", "heads x head_dim is the width of the layer, before and after."])
