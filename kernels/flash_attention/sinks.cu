// A learned sink for each head: one more score per row that takes weight and gives no value (gpt-oss).
//
//   out = sum of exp(s_j - lse) v_j,   lse = log(exp(sink) + sum of exp(s_j))
//
// Attention without a sink has made out and lse already; a sink only changes by what they are divided. So it is
// one pass over the output, after any rung of the ladder. The backward of the ladder needs no change: given this
// out and this lse, it recomputes the weights as they are with the sink. What is left is the sink's own
// gradient, -sum over rows of exp(sink - lse) (dO . out).
//
// Counted at n = 128, v_dim = 64, one float head: bytes asked of global memory.
//
//   kernel           idea                                              asked      still wastes
//   give_to_sinks    one warp per row, in place                       98,816      out is read and written again
//   sink_gradients   one block per head, sums in a fixed order         2,052      heads x 256 threads are few
//
// out (batch * n_heads, n_q, v_dim), lse (batch * n_heads, n_q), sinks (n_heads).
#include "../common/numbers.cuh"
#include "../common/rows.cuh"

// Grid (n_q, batch * n_heads), block 32.
template <typename T>
__global__ void give_to_sinks(T* __restrict__ out, float* __restrict__ lse, const float* __restrict__ sinks,
                              int n_heads, int n_q, int v_dim) {
    const long long row = (long long)blockIdx.y * n_q + blockIdx.x;
    const float sink = sinks[blockIdx.y % n_heads], own = lse[row];
    const float largest = fmaxf(sink, own);
    const float kept = expf(own - largest), total = kept + expf(sink - largest);
    for (int c = threadIdx.x; c < v_dim; c += 32)
        out[row * v_dim + c] = narrow<T>(widen(out[row * v_dim + c]) * (kept / total));
    __syncwarp();  // every lane has read lse[row]
    if (threadIdx.x == 0) lse[row] = largest + logf(total);
}

// delta (batch * n_heads, n_q) is the row sums of dO * out. Grid n_heads, block 256.
__global__ void sink_gradients(const float* __restrict__ lse, const float* __restrict__ delta,
                               const float* __restrict__ sinks, float* __restrict__ grad_sinks, int batch,
                               int n_q) {
    __shared__ float part[256 / 32];
    const int head = blockIdx.x, n_heads = gridDim.x;
    const float sink = sinks[head];
    float sum = 0.0f;
    for (int e = threadIdx.x; e < batch * n_q; e += blockDim.x) {
        const long long row = ((long long)(e / n_q) * n_heads + head) * n_q + e % n_q;
        sum -= expf(sink - lse[row]) * delta[row];
    }
    sum = lanes_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0f;
        for (int w = 0; w < blockDim.x / 32; ++w) sum += part[w];
        grad_sinks[head] = sum;
    }
}
