// Wasserstein-2 attention on the tensor cores: rung 3 of w2_attention.cu. The attention itself is
// flash_tensor_core of chapter 6, with scores of width 2 d and a bias per key; here its operands are made.
//
//   -|q - k|^2 / tau  =  (2 / tau) q.k - |k|^2 / tau - |q|^2 / tau, and the last term is the same in a whole row
//
// One pass instead of one per operation. Bytes asked for per row at d = 64 in half precision: 576 read (256 of mu and
// sigma, as many of the first key, 64 of tau), 256 written, and 4 more per key for the bias. H200: 83 % of reading.
#include <float.h>

#include "../common/numbers.cuh"
#include "../common/rows.cuh"

// Rows of [mu | sigma] with the origin at the head's first key: queries times 2 / tau, or keys and their bias
// -|k|^2 / tau, of k as it is rounded. One launch for queries (bias null) and one for keys. mu, sigma (heads, n, d),
// d a multiple of 8 up to 64; out (heads, n, 2 d); 16 lanes per row, 16 bytes each. Grid (n / 8, heads), block 128.
template <typename T>
__global__ void __launch_bounds__(128)
    w2_prepare(const T* __restrict__ mu, const T* __restrict__ sigma, const T* __restrict__ mu_k,
               const T* __restrict__ sigma_k, const float* __restrict__ tau, T* __restrict__ out,
               float* __restrict__ bias, int n_heads, int n, int n_k, int d) {
    const int row = blockIdx.x * 8 + threadIdx.x / 16, c = threadIdx.x % 16 * 8;
    const long long head = blockIdx.y;
    const bool inside = row < n && c < 2 * d;
    const float temperature = tau[head % n_heads], scale = bias ? 1.0f : 2.0f / temperature;
    float square = 0.0f;
    if (inside) {
        const T *x = c < d ? mu : sigma, *first = c < d ? mu_k : sigma_k;
        Sixteen<T> own, centre;
        own.bits = *(const int4*)(x + (head * n + row) * d + c % d);
        centre.bits = *(const int4*)(first + head * n_k * d + c % d);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float moved = own.get(i) - centre.get(i);
            own.set(i, moved * scale);
            square += own.get(i) * own.get(i);
        }
        *(int4*)(out + (head * n + row) * 2 * d + c) = own.bits;
    }
    square = lanes_sum(square, 16);  // by all lanes, also those beyond the end
    if (bias && row < n && c == 0) bias[head * n + row] = fmaxf(-square / temperature, -FLT_MAX);
}
