"""Problems with products: a tiled product, attention of many queries and of one, pages, a window."""
import torch

from course_lib.exercises import Case, Launch, out
from course_lib.exercises.draws import randn, whole
from .problem import LeagueProblem

WIDTH = 32                       # of a head


def _product_cases(rng):
    return [Case(randn(rng, whole(rng, 20, 90), k), randn(rng, k, whole(rng, 20, 90)), label=f"case {n}")
            for n, k in enumerate([whole(rng, 10, 70) for _ in range(3)])]


PRODUCT = LeagueProblem(
    "91.6", "product", "Tiled product",
    """`c = a b` for matrices of `m` x `k` and `k` x `n`. One block of 256 threads for every 32 x 32
    numbers of `c`.""",
    """
    __global__ void product(const float* __restrict__ a, const float* __restrict__ b,
                            float* __restrict__ c,
                            int m, int n, int k) {
        for (int i = threadIdx.x; i < 1024; i += 256) {
            int row = blockIdx.y * 32 + i / 32, column = blockIdx.x * 32 + i % 32;
            if (row >= m || column >= n) continue;
            float sum = 0;
            for (int d = 0; d < k; ++d) sum += a[row * k + d] * b[d * n + column];
            c[row * n + column] = sum;
        }
    }
    """,
    _product_cases,
    lambda a, b: Launch((-(-b.shape[1] // 32), -(-len(a) // 32)), 256,
                        [a, b, out((len(a), b.shape[1])), len(a), b.shape[1], b.shape[0]]),
    lambda a, b: a @ b)


def _attend(q, k, v):
    return torch.softmax(q @ k.T / WIDTH**0.5, 1) @ v


WARP_PER_QUERY = """
        int lane = threadIdx.x % 32, i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
        if (i >= n) return;
        float own = q[i * 32 + lane], high = -INFINITY, sum = 0, mixed = 0;
        for (int j = FIRST; j < LAST; ++j) {
            float score = own * k[j * 32 + lane];
            for (int d = 16; d > 0; d /= 2) score += __shfl_xor_sync(0xffffffff, score, d);
            score *= scale;
            float higher = fmaxf(high, score), old = expf(high - higher), now = expf(score - higher);
            sum = sum * old + now;
            mixed = mixed * old + now * v[j * 32 + lane];
            high = higher;
        }
        out[i * 32 + lane] = mixed / sum;
"""



def _kernel(name: str, parameters: str, first: str = "0", last: str = "m") -> str:
    """Attention by a warp per query, over keys `first` to `last`; `parameters` follow q, k and v."""
    return f"""
    __global__ void {name}(const float* __restrict__ q, const float* __restrict__ k,
                           const float* __restrict__ v, {parameters}) {{""" + (
        WARP_PER_QUERY.replace("FIRST", first).replace("LAST", last) + "    }\n")


FLASH = LeagueProblem(
    "91.7", "flash", "Flash attention, forward",
    """Attention of `n` queries over `m` keys and values, one head of width 32, `scale` on the scores.
    Blocks of 128 threads, one for every 4 queries.""",
    _kernel("flash", "float* __restrict__ out, int n, int m, float scale"),
    lambda rng: [Case(randn(rng, whole(rng, 10, 40), WIDTH), randn(rng, m, WIDTH), randn(rng, m, WIDTH),
                      label=f"case {n}") for n, m in enumerate([whole(rng, 10, 60) for _ in range(3)])],
    lambda q, k, v: Launch(-(-len(q) // 4), 128, [q, k, v, out(q.shape), len(q), len(k), WIDTH**-0.5]),
    _attend)

DECODE = LeagueProblem(
    "91.8", "decode", "Decoding one token",
    """Attention of a group of `n` queries that share the same `m` keys and values, of width 32. One
    block of 256 threads in all.""",
    _kernel("decode", "float* __restrict__ out, int n, int m, float scale"),
    lambda rng: [Case(randn(rng, whole(rng, 1, 8), WIDTH), randn(rng, m, WIDTH), randn(rng, m, WIDTH),
                      label=f"case {n}") for n, m in enumerate([whole(rng, 30, 300) for _ in range(3)])],
    lambda q, k, v: Launch(1, 256, [q, k, v, out(q.shape), len(q), len(k), WIDTH**-0.5]),
    _attend)


def _paged_cases(rng):
    made = []
    for n in range(3):
        pages = whole(rng, 2, 14)
        table = torch.randperm(pages, generator=rng).int()
        made.append(Case(randn(rng, whole(rng, 1, 8), WIDTH), randn(rng, pages * 16, WIDTH),
                         randn(rng, pages * 16, WIDTH), table, label=f"case {n}"))
    return made


PAGED = LeagueProblem(
    "91.9", "paged", "Decoding from pages",
    """As `decode`, with the keys and values in `pages` pages of 16 rows, of which token `t` is row
    `t % 16` of page `table[t / 16]`. All pages are in use. One block of 256 threads.""",
    _kernel("paged", "const int* __restrict__ table, float* __restrict__ out, int n, int pages,\n"
            "                           float scale", last="16 * pages").replace(
        "float score = own", "int page = table[j / 16];\n            float score = own").replace(
        "[j * 32", "[(page * 16 + j % 16) * 32"),
    _paged_cases,
    lambda q, k, v, table: Launch(
        1, 256, [q, k, v, table, out(q.shape), len(q), len(table), WIDTH**-0.5]),
    lambda q, k, v, table: _attend(
        q, *(x.view(-1, 16, WIDTH)[table.long()].reshape(-1, WIDTH) for x in (k, v))))


def _windowed(q, k, v, window):
    score = q @ k.T / WIDTH**0.5
    i, j = torch.arange(len(q))[:, None], torch.arange(len(k))
    return torch.softmax(score.masked_fill((j > i) | (j <= i - window), -torch.inf), 1) @ v


WINDOW = LeagueProblem(
    "91.10", "window", "A window",
    """Attention of `n` queries, each over its own key and the `window - 1` before it, of width 32.
    Blocks of 128 threads, one for every 4 queries.""",
    _kernel("window", "float* __restrict__ out, int n, int window, float scale",
            first="max(0, i - window + 1)", last="i + 1"),
    lambda rng: [Case(*(randn(rng, n, WIDTH) for _ in range(3)), whole(rng, 3, 20), label=f"case {c}")
                 for c, n in enumerate([whole(rng, 30, 110) for _ in range(3)])],
    lambda q, k, v, window: Launch(-(-len(q) // 4), 128, [q, k, v, out(q.shape), len(q), window,
                                                          WIDTH**-0.5]),
    _windowed)

PRODUCTS = [PRODUCT, FLASH, DECODE, PAGED, WINDOW]
