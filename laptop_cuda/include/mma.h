// nvcuda::wmma: matrices held by a warp. Values and bytes are exact; which lane holds which element is not defined by
// CUDA, and here a lane holds neighbours of a row (of a column where the matrix is stored by columns), so that a load
// is one access of up to 16 bytes.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a; struct matrix_b; struct accumulator;
struct row_major; struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision { struct tf32; }
// of 1 and 4 bits: declared for headers that name them; a kernel that uses them ends there
namespace experimental {
namespace precision { struct b1 { int bits; }; struct s4 : b1 {}; struct u4 : b1 {}; }
enum bmmaBitOp { bmmaBitOpXOR = 1, bmmaBitOpAND = 2 };
enum bmmaAccumulateOp { bmmaAccumulateOpPOPC = 1 };
}  // namespace experimental
template <class... F> LAPTOP_FN void bmma_sync(F&&...) { laptop::unknown("nvcuda::wmma::bmma_sync"); }

template <class T> struct laptop_stored { typedef T type; };
template <> struct laptop_stored<precision::tf32> { typedef float type; };
template <class Use, int M, int N, int K> struct laptop_shape { static constexpr int rows = M, columns = N; };
template <int M, int N, int K> struct laptop_shape<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct laptop_shape<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    typedef laptop_shape<Use, M, N, K> shape;
    typedef typename laptop_stored<T>::type element_type;
    typedef element_type storage_element_type;
    static constexpr bool by_columns = std::is_same<Layout, col_major>::value;
    static constexpr int num_elements = shape::rows * shape::columns / 32, num_storage_elements = num_elements;
    element_type x[num_elements];

    LAPTOP_QUIET static int row(int lane, int i) {
        int at = lane * num_elements + i;
        return by_columns ? at % shape::rows : at / shape::columns;
    }
    LAPTOP_QUIET static int column(int lane, int i) {
        int at = lane * num_elements + i;
        return by_columns ? at / shape::rows : at % shape::columns;
    }
};

LAPTOP_FN float __float_to_tf32(float x) { return laptop::float_of((laptop::bits_of(x) + 0x1000) & ~0x1fffu); }

template <class Use, int M, int N, int K, class T, class Layout, class V>
LAPTOP_FN void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const V& value) {
    for (auto& element : f.x) element = value;
}

// The addresses of a lane's elements, announced in pieces of up to 16 bytes where they are neighbours.
template <class F>
LAPTOP_FN void laptop_announce(const F&, const typename F::element_type* p, unsigned stride, bool columns, bool store,
                               const void* site) {
    typedef typename F::element_type E;
    if (!LAPTOP_TRACED) return;
    int lane = laptop::lane_id();
    auto at = [&](int i) LAPTOP_QUIET {
        int r = F::row(lane, i), c = F::column(lane, i);
        return p + (columns ? c * (size_t)stride + r : r * (size_t)stride + c);
    };
    for (int i = 0; i < F::num_elements;) {
        int n = 1;
        while (i + n < F::num_elements && (n + 1) * sizeof(E) <= 16 && at(i + n) == at(i) + n) ++n;
        while (n > 1 && ((n & (n - 1)) || (uintptr_t)at(i) % (n * sizeof(E)))) --n;
        if (store) laptop::will_write((void*)at(i), n * sizeof(E), site);
        else laptop::will_read(at(i), n * sizeof(E), site);
        i += n;
    }
}
// Rows (or columns) begin at multiples of 16 bytes from each other, the matrix at one of 32, or of a row that is shorter.
template <class F>
LAPTOP_FN void laptop_place(const typename F::element_type* p, unsigned stride, bool columns, bool store, const void* site) {
    constexpr size_t size = sizeof(typename F::element_type);
    size_t row = size * (columns ? F::shape::rows : F::shape::columns);
    if (!LAPTOP_TRACED) return;
    laptop::must_align(p, row < 32 ? row : 32, store, site);
    if (stride * size % 16) laptop::trap("load_matrix_sync or store_matrix_sync with rows that are no multiple of 16 bytes", site);
}
LAPTOP_FN void laptop_whole_warp(const char* what, const void* site) {
    if (laptop::warp_exchange(0xffffffffu, nullptr, 0, laptop::MMA, false, site).present != 0xffffffffu)
        laptop::trap(what, site);
}
template <class F>
LAPTOP_FN void laptop_load(F& f, const typename F::element_type* p, unsigned stride, bool columns, const void* site) {
    laptop_whole_warp("load_matrix_sync without a whole warp", site);
    laptop_place<F>(p, stride, columns, false, site);
    laptop_announce(f, p, stride, columns, false, site);
    int lane = laptop::lane_id();
    for (int i = 0; i < F::num_elements; ++i) {
        int r = F::row(lane, i), c = F::column(lane, i);
        __builtin_memcpy((void*)&f.x[i], p + (columns ? c * (size_t)stride + r : r * (size_t)stride + c), sizeof f.x[i]);
    }
}
template <class Use, int M, int N, int K, class T, class Layout>
LAPTOP_FN void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f,
                                const typename fragment<Use, M, N, K, T, Layout>::element_type* p, unsigned stride) {
    laptop_load(f, p, stride, f.by_columns, LAPTOP_SITE);
}
template <int M, int N, int K, class T>
LAPTOP_FN void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* p, unsigned stride, layout_t layout) {
    laptop_load(f, p, stride, layout == mem_col_major, LAPTOP_SITE);
}
template <int M, int N, int K, class T>
LAPTOP_FN void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
    typedef fragment<accumulator, M, N, K, T> F;
    const void* site = LAPTOP_SITE;
    laptop_whole_warp("store_matrix_sync without a whole warp", site);
    laptop_place<F>(p, stride, layout == mem_col_major, true, site);
    laptop_announce(f, p, stride, layout == mem_col_major, true, site);
    int lane = laptop::lane_id();
    for (int i = 0; i < F::num_elements; ++i) {
        int r = F::row(lane, i), c = F::column(lane, i);
        T* to = p + (layout == mem_col_major ? c * (size_t)stride + r : r * (size_t)stride + c);
        __builtin_memcpy((void*)to, (const void*)&f.x[i], sizeof(T));
    }
}

template <class T> LAPTOP_FN double laptop_number(T value) { return double(value); }
LAPTOP_FN double laptop_number(__half value) { return laptop::binary16::widen(value.laptop_bits()); }
LAPTOP_FN double laptop_number(__nv_bfloat16 value) { return laptop::bfloat16::widen(value.laptop_bits()); }

// All of a fragment is what the compiler fills a variable with that has no value: bytes may be so by chance.
template <class F> LAPTOP_FN void laptop_has_value(const F& f, const void* site) {
    auto* p = (const unsigned char*)f.x;
    bool fill = LAPTOP_TRACED && sizeof f.x[0] > 1 && (*p == 0xfe || *p == (std::is_integral<typename F::element_type>::value ? 0xaa : 0xff));
    for (size_t i = 1; fill && i < sizeof f.x; ++i) fill = p[i] == *p;
    if (fill) laptop::has_no_value(site);
}

// Products are exact; the K + 1 terms are added in double and rounded once.
template <int M, int N, int K, class D, class A, class LA, class B, class LB, class C>
LAPTOP_FN void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
                        const fragment<matrix_b, M, N, K, B, LB>& b, const fragment<accumulator, M, N, K, C>& c, bool = false) {
    typedef fragment<matrix_a, M, N, K, A, LA> FA;
    typedef fragment<matrix_b, M, N, K, B, LB> FB;
    const void* site = LAPTOP_SITE;
    unsigned char own[64];
    static_assert(sizeof a.x + sizeof b.x <= sizeof own, "a fragment of this size is not supported");
    laptop_has_value(a, site), laptop_has_value(b, site), laptop_has_value(c, site);
    __builtin_memcpy(own, (const void*)a.x, sizeof a.x);
    __builtin_memcpy(own + sizeof a.x, (const void*)b.x, sizeof b.x);
    const laptop::Exchange& x = laptop::warp_exchange(0xffffffffu, own, sizeof a.x + sizeof b.x, laptop::MMA, false, site);
    if (x.present != 0xffffffffu) laptop::trap("mma_sync without a whole warp", site);
    if (LAPTOP_TRACED && laptop::lane_id() == 0) laptop::count_product(2ull * M * N * K, site);
    double left[M * K], right[K * N];
    for (int lane = 0; lane < 32; ++lane) {
        typename FA::element_type ea[FA::num_elements];
        typename FB::element_type eb[FB::num_elements];
        __builtin_memcpy((void*)ea, x.slot[lane], sizeof ea);
        __builtin_memcpy((void*)eb, x.slot[lane] + sizeof ea, sizeof eb);
        for (int i = 0; i < FA::num_elements; ++i) left[FA::row(lane, i) * K + FA::column(lane, i)] = laptop_number(ea[i]);
        for (int i = 0; i < FB::num_elements; ++i) right[FB::row(lane, i) * N + FB::column(lane, i)] = laptop_number(eb[i]);
    }
    int own_lane = laptop::lane_id();
    for (int i = 0; i < d.num_elements; ++i) {
        double sum = laptop_number(c.x[i]);
        for (int k = 0; k < K; ++k) sum += left[d.row(own_lane, i) * K + k] * right[k * N + d.column(own_lane, i)];
        d.x[i] = D(float(sum));
        if (std::is_integral<D>::value) d.x[i] = D((long long)sum);
    }
}
}  // namespace wmma
}  // namespace nvcuda
