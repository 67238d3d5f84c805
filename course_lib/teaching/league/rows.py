"""Problems over the rows of a matrix: softmax, transposition, reduction, rotation, the largest of a row."""
import torch

from course_lib.exercises import Case, Launch, out
from course_lib.exercises.draws import randn, whole
from course_lib.exercises.parts import inout
from .problem import LeagueProblem


def _rows(rng, low: int, high: int, most_rows: int):
    return [Case(randn(rng, whole(rng, 1, most_rows), whole(rng, low, high)), label=f"case {n}")
            for n in range(3)]


SOFTMAX = LeagueProblem(
    "91.1", "softmax", "Softmax of long rows",
    """`out` is the softmax of each row of `x`, which has `n` numbers. One block of 256 threads per row.""",
    """
    __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int n) {
        __shared__ float highest[8], sums[8];
        const float* row = x + (size_t)blockIdx.x * n;
        float high = -INFINITY, sum = 0;
        for (int i = threadIdx.x; i < n; i += 256) {
            float value = row[i], higher = fmaxf(high, value);
            sum = sum * expf(high - higher) + expf(value - higher);
            high = higher;
        }
        for (int d = 16; d > 0; d /= 2) {
            float other_high = __shfl_xor_sync(0xffffffff, high, d);
            float other = __shfl_xor_sync(0xffffffff, sum, d), higher = fmaxf(high, other_high);
            if (higher > -INFINITY) sum = sum * expf(high - higher) + other * expf(other_high - higher);
            high = higher;
        }
        if (threadIdx.x % 32 == 0) { highest[threadIdx.x / 32] = high; sums[threadIdx.x / 32] = sum; }
        __syncthreads();
        high = -INFINITY, sum = 0;
        for (int w = 0; w < 8; ++w) high = fmaxf(high, highest[w]);
        for (int w = 0; w < 8; ++w) sum += sums[w] * expf(highest[w] - high);
        for (int i = threadIdx.x; i < n; i += 256)
            out[(size_t)blockIdx.x * n + i] = expf(row[i] - high) / sum;
    }
    """,
    lambda rng: _rows(rng, 300, 3000, 5),
    lambda x: Launch(len(x), 256, [x, out(x.shape), x.shape[1]]),
    lambda x: torch.softmax(x, 1))

TRANSPOSE = LeagueProblem(
    "91.2", "transpose", "Transposition",
    """`out` is the transpose of `x`, which has `n` rows and `m` columns. Blocks of 32 x 8 threads, one for
    every 32 x 32 tile.""",
    """
    __global__ void transpose(const float* __restrict__ x, float* __restrict__ out, int n, int m) {
        int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
        for (int r = row + threadIdx.y; r < row + 32 && r < n; r += 8)
            if (column < m) out[(size_t)column * n + r] = x[(size_t)r * m + column];
    }
    """,
    lambda rng: [Case(randn(rng, whole(rng, 20, 150), whole(rng, 20, 150)), label=f"case {n}")
                 for n in range(3)],
    lambda x: Launch((-(-x.shape[1] // 32), -(-len(x) // 32)), (32, 8), [x, out(x.shape[::-1]), *x.shape]),
    lambda x: x.T.contiguous())

REDUCE = LeagueProblem(
    "91.3", "row_sums", "Reduction",
    """`out[r]` is the sum of row `r` of `x`, which has `n` numbers. One block of 256 threads per row.""",
    """
    __global__ void row_sums(const float* __restrict__ x, float* __restrict__ out, int n) {
        __shared__ float part[256];
        float sum = 0;
        for (int i = threadIdx.x; i < n; i += 256) sum += x[(size_t)blockIdx.x * n + i];
        part[threadIdx.x] = sum;
        for (int d = 128; d > 0; d /= 2) {
            __syncthreads();
            if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
        }
        if (threadIdx.x == 0) out[blockIdx.x] = part[0];
    }
    """,
    lambda rng: _rows(rng, 100, 4000, 6),
    lambda x: Launch(len(x), 256, [x, out(len(x)), x.shape[1]]),
    lambda x: x.double().sum(1).float(), tolerance=1e-3)


def _rope_cases(rng):
    made = []
    for n in range(3):
        rows, half = whole(rng, 5, 90), whole(rng, 3, 40)
        angle = randn(rng, rows, half)
        made.append(Case(randn(rng, rows, 2 * half), angle.cos(), angle.sin(), label=f"case {n}"))
    return made


def _rope(x, cos, sin):
    half = x.shape[1] // 2
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], 1)


ROPE = LeagueProblem(
    "91.4", "rope", "RoPE in place",
    """Rotate each row of `x` in place: its halves `a` and `b`, each of `half` numbers, become
    `a cos - b sin` and `a sin + b cos`, with the row's own `cos` and `sin`. One block of 64 threads per
    row.""",
    """
    __global__ void rope(float* x, const float* __restrict__ cosine, const float* __restrict__ sine,
                         int half) {
        float* row = x + (size_t)blockIdx.x * 2 * half;
        for (int i = threadIdx.x; i < half; i += 64) {
            float c = cosine[(size_t)blockIdx.x * half + i], s = sine[(size_t)blockIdx.x * half + i];
            float a = row[i], b = row[half + i];
            row[i] = a * c - b * s;
            row[half + i] = a * s + b * c;
        }
    }
    """,
    _rope_cases,
    lambda x, cos, sin: Launch(len(x), 64, [inout(x), cos, sin, x.shape[1] // 2]),
    _rope)

def _top_cases(rng):
    made = []
    for n in range(3):
        width, rows = whole(rng, 50, 1500), whole(rng, 1, 4)
        x = torch.stack([torch.randperm(width, generator=rng).float() for _ in range(rows)])
        made.append(Case(x, label=f"case {n}"))
    return made


TOP = LeagueProblem(
    "91.5", "top_k", "The eight largest of a row",
    """`out` has the 8 largest numbers of each row of `x`, the largest first. The `n` numbers of a row differ.
    One block of 256 threads per row.""",
    """
    __global__ void top_k(const float* __restrict__ x, float* __restrict__ out, int n) {
        __shared__ float best[256];
        float below = INFINITY;
        for (int k = 0; k < 8; ++k) {
            float high = -INFINITY;
            for (int i = threadIdx.x; i < n; i += 256) {
                float value = x[(size_t)blockIdx.x * n + i];
                if (value < below) high = fmaxf(high, value);
            }
            best[threadIdx.x] = high;
            for (int d = 128; d > 0; d /= 2) {
                __syncthreads();
                if (threadIdx.x < d) best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + d]);
            }
            __syncthreads();
            below = best[0];
            if (threadIdx.x == 0) out[blockIdx.x * 8 + k] = below;
            __syncthreads();
        }
    }
    """,
    _top_cases,
    lambda x: Launch(len(x), 256, [x, out((len(x), 8)), x.shape[1]]),
    lambda x: x.topk(8, 1).values)

ROWS = [SOFTMAX, TRANSPOSE, REDUCE, ROPE, TOP]
