"""Kernels with one planted bug each, written before the search for bugs was: what `report.why` is measured on.

A bug is (kernel, right text, wrong text); the guilty line is the one that differs."""
import numpy as np

import laptop_cuda as cuda

KERNELS = {"convolve": """
__global__ void convolve(const float* x, const float* w, float* out, int n, int radius) {
    __shared__ float tile[96];
    int i = blockIdx.x * 64 + threadIdx.x;
    for (int t = threadIdx.x; t < 64 + 2 * radius; t += 64) {
        int at = blockIdx.x * 64 + t - radius;
        tile[t] = at >= 0 && at < n ? x[at] : 0.0f;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int k = -radius; k <= radius; ++k)
        sum += tile[threadIdx.x + radius + k] * w[radius + k];
    if (i < n) out[i] = sum;
}
""", "normalise": """
__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}
__global__ void normalise(const float* x, const float* gain, float* out, int columns, float eps) {
    const float* row = x + blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 32) sum += row[c];
    float mean = warp_sum(sum) / columns;
    for (int c = threadIdx.x; c < columns; c += 32) {
        float d = row[c] - mean;
        squares += d * d;
    }
    float rate = rsqrtf(warp_sum(squares) / columns + eps);
    for (int c = threadIdx.x; c < columns; c += 32)
        out[blockIdx.x * columns + c] = (row[c] - mean) * rate * gain[c];
}
""", "scan": """
__global__ void scan(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    tile[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int stride = 1; stride < 64; stride *= 2) {
        float left = 0.0f;
        if (t >= stride) left = tile[t - stride];
        __syncthreads();
        tile[t] += left;
        __syncthreads();
    }
    if (t < n) out[t] = tile[t] - x[t];
}
""", "multiply": """
__global__ void multiply(const float* a, const float* b, const float* c, float* out, int n, float beta) {
    __shared__ float at[8][8], bt[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 8 + ty, col = blockIdx.x * 8 + tx;
    float acc = 0.0f;
    int tiles = (n + 7) / 8;
    for (int t = 0; t < tiles; ++t) {
        at[ty][tx] = row < n && t * 8 + tx < n ? a[row * n + t * 8 + tx] : 0.0f;
        bt[ty][tx] = col < n && t * 8 + ty < n ? b[(t * 8 + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 8; ++k) acc += at[ty][k] * bt[k][tx];
        __syncthreads();
    }
    if (row < n && col < n)
        out[row * n + col] = acc + beta * c[row * n + col];
}
""", "average": """
__global__ void average(const float* x, const int* lengths, float* out, int steps, int lanes, float decay) {
    int lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes) return;
    float state = 0.0f, weight = 0.0f;
    int end = lengths[lane];
    for (int t = 0; t < end; ++t) {
        float v = x[t * lanes + lane];
        state = decay * state + v;
        weight = decay * weight + 1.0f;
    }
    out[lane] = state / weight;
}
"""}
BUGS = {
    "the window ends one step early": ("convolve", "k <= radius", "k < radius"),
    "the halo on the left is forgotten": ("convolve", "t - radius;", "t;"),
    "the variance is not divided": ("normalise", "squares) / columns", "squares)"),
    "half of the warp is added up": ("normalise", "offset = 16", "offset = 8"),
    "the stride grows by two": ("scan", "stride *= 2", "stride += 2"),
    "the tile of b is read by rows": ("multiply", "bt[k][tx]", "bt[tx][k]"),
    "the old matrix is not added": ("multiply", "acc + beta * c[row * n + col]", "acc"),
    "the weight forgets to decay": ("average", "decay * weight + 1.0f", "weight + 1.0f")}


def given(kernel: str):
    """(grid, block, arguments, which of them is the output)"""
    floats = lambda *shape: np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    return {
        "convolve": lambda: (2, 64, [floats(100), floats(5), np.zeros(100, np.float32), 100, 2], 2),
        "normalise": lambda: (3, 32, [floats(3, 40) + 1, floats(40), np.zeros((3, 40), np.float32), 40, 1e-5], 2),
        "scan": lambda: (1, 64, [floats(50), np.zeros(50, np.float32), 50], 1),
        "multiply": lambda: ((3, 3), (8, 8), [floats(20, 20), floats(20, 20), floats(20, 20),
                                              np.zeros((20, 20), np.float32), 20, 0.5], 3),
        "average": lambda: (2, 32, [floats(9, 40), np.arange(40, dtype=np.int32) % 9 + 1,
                                    np.zeros(40, np.float32), 9, 40, 0.75], 2)}[kernel]()


def launched(source: str, kernel: str):
    """(the report, the output)"""
    grid, block, arguments, output = given(kernel)
    with cuda.profile() as report:
        cuda.compile(source)[kernel][grid, block](*arguments)
    return report, arguments[output]


def traced(bug: str, with_expected: bool = True):
    """(the answer about the first wrong element, the guilty line)"""
    kernel, right, wrong = BUGS[bug]
    source = KERNELS[kernel]
    assert source.count(right) == 1, bug
    expected = launched(source, kernel)[1]
    report, out = launched(changed := source.replace(right, wrong), kernel)
    (first, *_) = np.flatnonzero(~np.isclose(out.ravel(), expected.ravel(), rtol=1e-3, atol=1e-4))
    index = tuple(int(i) for i in np.unravel_index(first, out.shape))
    guilty = [n for n, (a, b) in enumerate(zip(source.split("\n"), changed.split("\n")), 1) if a != b]
    return report.why(out, index, expected if with_expected else None), guilty[0]
