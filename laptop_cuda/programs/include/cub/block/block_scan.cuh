// CUB's scans and loads of a block, and the scan of a warp. As on the card, reusing temporary storage needs a barrier.
#pragma once
#include "block_reduce.cuh"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE,
                          BLOCK_LOAD_WARP_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED };
enum BlockStoreAlgorithm { BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE,
                           BLOCK_STORE_WARP_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED };

// The combined values of the lanes before this one in its group of `width` (`any`: is there one?), and of all of it.
template <class T> struct laptop_scanned {
    T before, total;
    bool any;
};
template <class T, class Operation>
LAPTOP_FN laptop_scanned<T> laptop_warp_scan(T value, Operation&& combine, int width, const void* site) {
    const laptop::Exchange& x = laptop::warp_exchange(laptop::active_lanes(), &value, sizeof(T), laptop::REDUCE, false, site);
    int own = laptop::lane_id(), first = own / width * width;
    laptop_scanned<T> made{value, value, false};
    T lane_value[32];
    unsigned present = x.present;
    for (int lane = first; lane < first + width; ++lane)
        if (present >> lane & 1) lane_value[lane] = laptop::take<T>(x, lane);
    bool some = false;
    for (int lane = first; lane < first + width; ++lane) {
        if (!(present >> lane & 1)) continue;
        if (lane == own && some) made.before = made.total, made.any = true;
        made.total = some ? combine(made.total, lane_value[lane]) : lane_value[lane];
        some = true;
    }
    return made;
}

// The functions that BlockScan and WarpScan have in common; `Self::scan(value, combine, site)` does the work.
template <class Self, class T> class laptop_scans {
public:
    // `total`: nothing, or a T that gets what all values make together
    template <class... A> LAPTOP_FN void InclusiveSum(T v, T& out, A&... total) { inclusive(v, out, cub::Sum(), LAPTOP_SITE, total...); }
    template <class... A> LAPTOP_FN void ExclusiveSum(T v, T& out, A&... total) { exclusive(v, out, T(), cub::Sum(), LAPTOP_SITE, total...); }
    template <class F, class... A> LAPTOP_FN void InclusiveScan(T v, T& out, F f, A&... total) {
        inclusive(v, out, f, LAPTOP_SITE, total...);
    }
    template <class F, class... A> LAPTOP_FN void ExclusiveScan(T v, T& out, T start, F f, A&... total) {
        exclusive(v, out, start, f, LAPTOP_SITE, total...);
    }
    // several values per thread
    template <int N, class... A> LAPTOP_FN void InclusiveSum(T (&v)[N], T (&out)[N], A&... total) {
        inclusive(v, out, cub::Sum(), LAPTOP_SITE, total...);
    }
    template <int N, class... A> LAPTOP_FN void ExclusiveSum(T (&v)[N], T (&out)[N], A&... total) {
        exclusive(v, out, T(), cub::Sum(), LAPTOP_SITE, total...);
    }
    template <int N, class F, class... A> LAPTOP_FN void InclusiveScan(T (&v)[N], T (&out)[N], F f, A&... total) {
        inclusive(v, out, f, LAPTOP_SITE, total...);
    }
    template <int N, class F, class... A> LAPTOP_FN void ExclusiveScan(T (&v)[N], T (&out)[N], T start, F f, A&... total) {
        exclusive(v, out, start, f, LAPTOP_SITE, total...);
    }

private:
    template <class F> LAPTOP_QUIET laptop_scanned<T> scanned(T v, F&& f, const void* site) {
        return static_cast<Self*>(this)->scan(v, f, site);
    }
    template <class F, class... A> LAPTOP_QUIET void inclusive(T v, T& out, F&& f, const void* site, A&... total) {
        laptop_scanned<T> s = scanned(v, f, site);
        out = s.any ? f(s.before, v) : v, ((total = s.total), ...);
    }
    template <class F, class... A> LAPTOP_QUIET void exclusive(T v, T& out, T start, F&& f, const void* site, A&... total) {
        laptop_scanned<T> s = scanned(v, f, site);
        out = s.any ? f(start, s.before) : start, ((total = s.total), ...);
    }
    template <int N, class F> LAPTOP_QUIET static T combined(T (&v)[N], F&& f) {
        T made = v[0];
        for (int i = 1; i < N; ++i) made = f(made, v[i]);
        return made;
    }
    template <int N, class F, class... A>
    LAPTOP_QUIET void inclusive(T (&v)[N], T (&out)[N], F&& f, const void* site, A&... total) {
        laptop_scanned<T> s = scanned(combined(v, f), f, site);
        out[0] = s.any ? f(s.before, v[0]) : v[0];
        for (int i = 1; i < N; ++i) out[i] = f(out[i - 1], v[i]);
        ((total = s.total), ...);
    }
    template <int N, class F, class... A>
    LAPTOP_QUIET void exclusive(T (&v)[N], T (&out)[N], T start, F&& f, const void* site, A&... total) {
        T before;
        exclusive(combined(v, f), before, start, f, site, total...);
        for (int i = 0; i < N; ++i) {
            T now = v[i];
            out[i] = before;
            before = f(before, now);
        }
    }
};

template <class T, int WIDTH = 32, int = 0> class WarpScan : public laptop_scans<WarpScan<T, WIDTH>, T> {
public:
    struct alignas(16) TempStorage { char unused[16]; };       // sources place arrays behind it
    LAPTOP_FN explicit WarpScan(TempStorage&) {}
    template <class F>
    LAPTOP_QUIET laptop_scanned<T> scan(T v, F&& f, const void* site) { return laptop_warp_scan(v, f, WIDTH, site); }
};

template <class T, int BLOCK_X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockScan : public laptop_scans<BlockScan<T, BLOCK_X, BLOCK_SCAN_RAKING, BLOCK_Y, BLOCK_Z>, T> {
    static constexpr int warps = (BLOCK_X * BLOCK_Y * BLOCK_Z + 31) / 32;

public:
    struct alignas(16) TempStorage { T of_warp[warps]; };
    LAPTOP_FN explicit BlockScan(TempStorage& temp) : temp(&temp) {}
    LAPTOP_FN BlockScan() : temp(nullptr) {}
    template <class F> LAPTOP_QUIET laptop_scanned<T> scan(T v, F&& f, const void* site) {
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x, warp = thread / 32;
        laptop_scanned<T> s = laptop_warp_scan(v, f, 32, site);
        if (thread % 32 == 0) laptop_store(&temp->of_warp[warp], s.total, site);
        laptop::block_barrier(false, site);
        laptop_scanned<T> made = s;
        for (int w = 0; w < warps; ++w) {
            T of = laptop_load(&temp->of_warp[w], site);
            if (w == warp && w) made.before = s.any ? f(made.total, s.before) : made.total, made.any = true;
            made.total = w ? f(made.total, of) : of;
        }
        return made;
    }

private:
    TempStorage* temp;
};

// Item i of a thread lies `step` behind item i - 1, the first one at `first`; those from `valid` on are left alone.
template <class T, int ITEMS>
LAPTOP_QUIET void laptop_direct_load(int first, int step, const T* from, T (&items)[ITEMS], int valid, const void* site) {
    for (int i = 0; i < ITEMS; ++i)
        if (first + i * step < valid) items[i] = laptop_load(from + first + i * step, site);
}
template <class T, int ITEMS>
LAPTOP_QUIET void laptop_direct_store(int first, int step, T* to, T (&items)[ITEMS], int valid, const void* site) {
    for (int i = 0; i < ITEMS; ++i)
        if (first + i * step < valid) laptop_store(to + first + i * step, items[i], site);
}
// Each thread takes ITEMS neighbours (or, striped, every BLOCK_X-th). Through memory as written, without a transposition.
template <int BLOCK_X, int ITEMS, int ALGORITHM, int BLOCK_Y, int BLOCK_Z>
struct laptop_block_items {
    struct alignas(16) TempStorage { char unused[16]; };       // sources place arrays behind it
    static constexpr bool STRIPED = ALGORITHM == BLOCK_LOAD_STRIPED;
    static constexpr int STEP = STRIPED ? BLOCK_X * BLOCK_Y * BLOCK_Z : 1;
    LAPTOP_QUIET static int first() {
        return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) * (STRIPED ? 1 : ITEMS);
    }
};
template <class T, int BLOCK_X, int ITEMS, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockLoad : public laptop_block_items<BLOCK_X, ITEMS, A, BLOCK_Y, BLOCK_Z> {
public:
    LAPTOP_FN explicit BlockLoad(typename BlockLoad::TempStorage&) {}
    LAPTOP_FN BlockLoad() {}
    LAPTOP_FN void Load(const T* from, T (&to)[ITEMS], int valid = 1 << 30) {
        laptop_direct_load(this->first(), this->STEP, from, to, valid, LAPTOP_SITE);
    }
    LAPTOP_FN void Load(const T* from, T (&to)[ITEMS], int valid, T otherwise) {
        for (T& item : to) item = otherwise;
        laptop_direct_load(this->first(), this->STEP, from, to, valid, LAPTOP_SITE);
    }
};
template <class T, int BLOCK_X, int ITEMS, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockStore : public laptop_block_items<BLOCK_X, ITEMS, A, BLOCK_Y, BLOCK_Z> {
public:
    LAPTOP_FN explicit BlockStore(typename BlockStore::TempStorage&) {}
    LAPTOP_FN BlockStore() {}
    LAPTOP_FN void Store(T* to, T (&from)[ITEMS], int valid = 1 << 30) {
        laptop_direct_store(this->first(), this->STEP, to, from, valid, LAPTOP_SITE);
    }
};
}  // namespace cub
