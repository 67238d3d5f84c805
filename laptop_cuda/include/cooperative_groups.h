// Cooperative groups: the grid, the block, tiles, and lanes that happen to run together.
// All of it uses the rendezvous of engine.h: block_barrier, grid_barrier, warp_exchange and partial_barrier.
// `site` is the student's call, which is why every function here is a LAPTOP_FN and takes it first thing.
#pragma once
#include "cuda_runtime.h"

namespace cooperative_groups {

LAPTOP_FN unsigned laptop_block_rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
LAPTOP_FN unsigned laptop_block_size() { return blockDim.x * blockDim.y * blockDim.z; }
LAPTOP_FN unsigned laptop_grid_rank() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
LAPTOP_FN unsigned laptop_lanes_below(unsigned mask) { return mask & ((1u << laptop::lane_id()) - 1); }
LAPTOP_FN int laptop_nth_lane(unsigned mask, int n) {
    for (; n > 0 && mask; --n) mask &= mask - 1;
    return mask ? __builtin_ctz(mask) : 32;              // 32: nobody, so the value is undefined
}

// What every group can do. A group of a warp is its mask of lanes; the block's mask is 0.
class thread_group {
public:
    LAPTOP_FN explicit thread_group(unsigned lanes) : lanes(lanes) {}
    LAPTOP_FN void sync() const { laptop_wait(LAPTOP_SITE); }
    LAPTOP_FN void laptop_wait(const void* site) const {
        if (lanes) laptop::warp_exchange(lanes, nullptr, 0, laptop::SYNCWARP, true, site);
        else laptop::block_barrier(false, site);
    }
    LAPTOP_FN unsigned long long size() const { return lanes ? __builtin_popcount(lanes) : laptop_block_size(); }
    LAPTOP_FN unsigned long long num_threads() const { return size(); }
    LAPTOP_FN unsigned long long thread_rank() const {
        return lanes ? __builtin_popcount(laptop_lanes_below(lanes)) : laptop_block_rank();
    }
    LAPTOP_FN bool is_valid() const { return true; }
    LAPTOP_FN unsigned laptop_lanes() const { return lanes; }

protected:
    unsigned lanes;
};

class thread_block : public thread_group {
public:
    LAPTOP_FN thread_block() : thread_group(0) {}
    LAPTOP_FN static void sync() { laptop::block_barrier(false, LAPTOP_SITE); }
    LAPTOP_FN static unsigned thread_rank() { return laptop_block_rank(); }
    LAPTOP_FN static unsigned size() { return laptop_block_size(); }
    LAPTOP_FN static unsigned num_threads() { return laptop_block_size(); }
    LAPTOP_FN static dim3 group_index() { return blockIdx; }
    LAPTOP_FN static dim3 thread_index() { return threadIdx; }
    LAPTOP_FN static dim3 group_dim() { return blockDim; }
    LAPTOP_FN static dim3 dim_threads() { return blockDim; }
};
// What CUDA needs of shared memory for tiles of more than a warp; here they need none.
template <unsigned = 1024, unsigned = 0> struct block_tile_memory { char laptop_unused; };
LAPTOP_FN thread_block this_thread_block() { return thread_block(); }
template <unsigned A, unsigned B>
LAPTOP_FN thread_block this_thread_block(block_tile_memory<A, B>&) { return thread_block(); }

class grid_group {
public:
    LAPTOP_FN static void sync() { laptop::grid_barrier(LAPTOP_SITE); }
    struct arrival_token {};
    LAPTOP_FN static arrival_token barrier_arrive() { return {}; }       // which promises no more than barrier_wait
    LAPTOP_FN static void barrier_wait(arrival_token&&) { laptop::grid_barrier(LAPTOP_SITE); }
    LAPTOP_FN static bool is_valid() { return laptop::grid_barrier_possible(); }
    LAPTOP_FN static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    LAPTOP_FN static unsigned long long size() { return num_blocks() * laptop_block_size(); }
    LAPTOP_FN static unsigned long long num_threads() { return size(); }
    LAPTOP_FN static unsigned long long block_rank() { return laptop_grid_rank(); }
    LAPTOP_FN static unsigned long long thread_rank() {
        return 1ull * laptop_grid_rank() * laptop_block_size() + laptop_block_rank();
    }
    LAPTOP_FN static dim3 group_dim() { return gridDim; }
    LAPTOP_FN static dim3 dim_blocks() { return gridDim; }
    LAPTOP_FN static dim3 block_index() { return blockIdx; }
};
LAPTOP_FN grid_group this_grid() { return grid_group(); }

// Lanes of one warp, by mask: shuffles and votes count by rank in the group.
class coalesced_group : public thread_group {
public:
    LAPTOP_FN explicit coalesced_group(unsigned lanes) : thread_group(lanes) {}
    LAPTOP_FN unsigned size() const { return __builtin_popcount(lanes); }
    LAPTOP_FN unsigned num_threads() const { return size(); }
    LAPTOP_FN unsigned thread_rank() const { return __builtin_popcount(laptop_lanes_below(lanes)); }
    template <class T> LAPTOP_FN T shfl(T value, unsigned rank) const {
        return laptop::shuffle(lanes, value, laptop_nth_lane(lanes, rank % size()), LAPTOP_SITE);
    }
    template <class T> LAPTOP_FN T shfl_down(T value, unsigned delta) const {
        unsigned rank = thread_rank() + delta;
        return laptop::shuffle(lanes, value, rank < size() ? laptop_nth_lane(lanes, rank) : laptop::lane_id(), LAPTOP_SITE);
    }
    template <class T> LAPTOP_FN T shfl_up(T value, unsigned delta) const {
        int rank = int(thread_rank()) - int(delta);
        return laptop::shuffle(lanes, value, rank >= 0 ? laptop_nth_lane(lanes, rank) : laptop::lane_id(), LAPTOP_SITE);
    }
    LAPTOP_FN unsigned ballot(int predicate) const { return ranks(laptop::ballot(lanes, predicate != 0, LAPTOP_SITE).yes); }
    LAPTOP_FN int any(int predicate) const { return laptop::ballot(lanes, predicate != 0, LAPTOP_SITE).yes != 0; }
    LAPTOP_FN int all(int predicate) const { return laptop::ballot(lanes, predicate != 0, LAPTOP_SITE).all(); }
    template <class T> LAPTOP_FN unsigned match_any(T value) const {
        return ranks(laptop::alike(lanes, value, LAPTOP_SITE).yes);
    }
    template <class T> LAPTOP_FN unsigned match_all(T value, int& all) const {
        laptop::Votes same = laptop::alike(lanes, value, LAPTOP_SITE);
        all = same.all();
        return all ? ranks(same.present) : 0;
    }
    LAPTOP_FN unsigned meta_group_rank() const { return 0; }
    LAPTOP_FN unsigned meta_group_size() const { return 1; }

protected:
    // Bit r of the answer is the bit of the group's r-th lane.
    LAPTOP_FN unsigned ranks(unsigned mask) const {
        unsigned packed = 0, rank = 0;
        for (int lane = 0; lane < 32; ++lane)
            if (lanes >> lane & 1) packed |= (mask >> lane & 1) << rank++;
        return packed;
    }
};
LAPTOP_FN coalesced_group coalesced_threads(int line = __builtin_LINE()) {
    return coalesced_group(laptop::converged_lanes(LAPTOP_SITE, line));
}

template <unsigned Size, class Parent = void, bool Wide = (Size > 32)>
class thread_block_tile : public coalesced_group {
    static_assert(Size > 0 && (Size & (Size - 1)) == 0, "the size of a tile is a power of two");

public:
    LAPTOP_FN thread_block_tile(unsigned rank_in_parent, unsigned size_of_parent)
        : coalesced_group(own_lanes()), rank(rank_in_parent / Size), count((size_of_parent + Size - 1) / Size) {}
    template <class Other> LAPTOP_FN thread_block_tile(const thread_block_tile<Size, Other>& other)
        : coalesced_group(other.laptop_lanes()), rank(other.meta_group_rank()), count(other.meta_group_size()) {}
    LAPTOP_FN static constexpr unsigned size() { return Size; }
    LAPTOP_FN static constexpr unsigned num_threads() { return Size; }
    LAPTOP_FN static unsigned thread_rank() { return laptop::lane_id() & (Size - 1); }
    LAPTOP_FN unsigned meta_group_rank() const { return rank; }
    LAPTOP_FN unsigned meta_group_size() const { return count; }
    template <class T> LAPTOP_FN T shfl_xor(T value, unsigned lane_mask) const {
        int rank = thread_rank() ^ lane_mask;
        int source = rank < int(Size) ? int(laptop::lane_id() & ~(Size - 1)) + rank : laptop::lane_id();
        return laptop::shuffle(lanes, value, source, LAPTOP_SITE);
    }

private:
    unsigned rank, count;

    LAPTOP_FN static unsigned own_lanes() {
        return (Size == 32 ? 0xffffffffu : (1u << Size % 32) - 1) << (laptop::lane_id() & ~(Size - 1));
    }
};

// A tile of several warps: its threads wait for each other, and see each other's values between two such waits.
template <unsigned Size, class Parent> class thread_block_tile<Size, Parent, true> {
    static_assert((Size & (Size - 1)) == 0 && Size <= 1024, "the size of a tile is a power of two, at most 1024");

public:
    LAPTOP_FN thread_block_tile(unsigned rank_in_parent, unsigned size_of_parent)
        : rank(rank_in_parent / Size), count((size_of_parent + Size - 1) / Size) {}
    template <class Other> LAPTOP_FN thread_block_tile(const thread_block_tile<Size, Other>& other)
        : rank(other.meta_group_rank()), count(other.meta_group_size()) {}
    LAPTOP_FN static constexpr unsigned size() { return Size; }
    LAPTOP_FN static constexpr unsigned num_threads() { return Size; }
    LAPTOP_FN static unsigned thread_rank() { return laptop_block_rank() % Size; }
    LAPTOP_FN unsigned meta_group_rank() const { return rank; }
    LAPTOP_FN unsigned meta_group_size() const { return count; }
    LAPTOP_FN void sync() const { laptop_wait(LAPTOP_SITE); }
    template <class T>
    LAPTOP_FN T shfl(const T& value, unsigned from) const { return laptop_take(value, from % Size, LAPTOP_SITE); }
    template <class T> LAPTOP_FN T shfl_xor(const T& value, unsigned mask) const {
        return laptop_take(value, thread_rank() ^ mask, LAPTOP_SITE);
    }
    template <class T> LAPTOP_FN T shfl_down(const T& value, unsigned delta) const {
        return laptop_take(value, thread_rank() + delta, LAPTOP_SITE);
    }
    template <class T> LAPTOP_FN T shfl_up(const T& value, unsigned delta) const {
        return laptop_take(value, thread_rank() - delta, LAPTOP_SITE);
    }
    LAPTOP_FN int any(int predicate) const { return laptop_yes(predicate, LAPTOP_SITE) > 0; }
    LAPTOP_FN int all(int predicate) const { return laptop_yes(predicate, LAPTOP_SITE) == laptop_threads(); }
    // The last tile of a block may have fewer threads.
    LAPTOP_FN unsigned laptop_threads() const {
        unsigned after = laptop_block_size() - laptop_first();
        return after < Size ? after : Size;
    }
    LAPTOP_FN void laptop_wait(const void* site) const {
        laptop::partial_barrier(16 + laptop_first() * 16 + __builtin_ctz(Size), laptop_threads(), site);
    }
    template <class T>
    LAPTOP_FN static const T& laptop_value(unsigned rank) { return *(const T*)laptop::shown_by(laptop_first() + rank); }

private:
    unsigned rank, count;

    LAPTOP_FN static unsigned laptop_first() { return laptop_block_rank() / Size * Size; }
    // The value of another thread of the tile; one's own where there is no such thread.
    template <class T> LAPTOP_FN T laptop_take(const T& value, unsigned from, const void* site) const {
        laptop::show(&value);
        laptop_wait(site);
        T taken = value;
        laptop::copy_unseen((void*)&taken, laptop::shown_by(laptop_first() + from), from < laptop_threads() ? sizeof(T) : 0);
        laptop_wait(site);
        return taken;
    }
    LAPTOP_FN unsigned laptop_yes(int predicate, const void* site) const {
        laptop::show(&predicate);
        laptop_wait(site);
        unsigned yes = 0;
        for (unsigned r = 0; r < laptop_threads(); ++r) yes += laptop_value<int>(r) != 0;
        laptop_wait(site);
        return yes;
    }
};

template <unsigned Size>
LAPTOP_FN thread_block_tile<Size, thread_block> tiled_partition(const thread_block&) {
    if (int(Size) > warpSize && Size <= 32) laptop::trap("tiled_partition into more threads than a warp has", LAPTOP_SITE);
    return {laptop_block_rank(), laptop_block_size()};
}
template <unsigned Size, unsigned Outer, class Parent>
LAPTOP_FN thread_block_tile<Size, thread_block_tile<Outer, Parent>> tiled_partition(
    const thread_block_tile<Outer, Parent>& parent) {
    static_assert(Size <= Outer, "a tile cannot be larger than the tile that it divides");
    return {parent.thread_rank(), Outer};
}
// The size known only at run time: a group of lanes.
LAPTOP_FN thread_group tiled_partition(const thread_group& parent, unsigned size) {
    unsigned rank = unsigned(parent.thread_rank()), first = rank / size * size;
    if (!parent.laptop_lanes()) {
        if (int(size) > warpSize)
            laptop::trap("tiled_partition into more threads than a warp has, which is not supported,", LAPTOP_SITE);
        unsigned base = laptop::lane_id() & ~(size - 1);
        return thread_group((size >= 32 ? 0xffffffffu : (1u << size) - 1) << base);
    }
    unsigned lanes = 0;
    for (unsigned r = first; r < first + size && r < parent.size(); ++r)
        lanes |= 1u << laptop_nth_lane(parent.laptop_lanes(), r);
    return thread_group(lanes);
}

// Lanes of a tile with the same answer.
LAPTOP_FN coalesced_group binary_partition(const coalesced_group& tile, bool predicate) {
    laptop::Votes v = laptop::ballot(tile.laptop_lanes(), predicate, LAPTOP_SITE);
    return coalesced_group(predicate ? v.yes : v.present & ~v.yes);
}
template <class Label> LAPTOP_FN coalesced_group labeled_partition(const coalesced_group& tile, Label label) {
    return coalesced_group(laptop::alike(tile.laptop_lanes(), label, LAPTOP_SITE).yes);
}

LAPTOP_FN void sync(const thread_group& group) { group.laptop_wait(LAPTOP_SITE); }
LAPTOP_FN void sync(const grid_group&) { laptop::grid_barrier(LAPTOP_SITE); }
template <unsigned Size, class Parent>
LAPTOP_FN void sync(const thread_block_tile<Size, Parent, true>& tile) { tile.laptop_wait(LAPTOP_SITE); }
template <class Group> LAPTOP_FN auto thread_rank(const Group& group) { return group.thread_rank(); }
template <class Group> LAPTOP_FN auto group_size(const Group& group) { return group.size(); }

// A thread block cluster; of a launch without them each block is one of its own.
class cluster_group {
public:
    using arrival_token = int;
    LAPTOP_FN static void sync() { laptop::cluster_arrive(false, LAPTOP_SITE), laptop::cluster_wait(LAPTOP_SITE); }
    LAPTOP_FN static arrival_token barrier_arrive() { return laptop::cluster_arrive(false, LAPTOP_SITE), 0; }
    LAPTOP_FN static void barrier_wait(arrival_token&& = 0) { laptop::cluster_wait(LAPTOP_SITE); }
    LAPTOP_FN static unsigned block_rank() { return laptop::rank_in_cluster(); }
    LAPTOP_FN static unsigned thread_rank() { return block_rank() * laptop_block_size() + laptop_block_rank(); }
    LAPTOP_FN static unsigned num_blocks() { return laptop::cluster_size(); }
    LAPTOP_FN static unsigned num_threads() { return num_blocks() * laptop_block_size(); }
    LAPTOP_FN static unsigned size() { return num_threads(); }
    LAPTOP_FN static dim3 block_index() { return laptop_three(2); }
    LAPTOP_FN static dim3 dim_blocks() { return laptop_three(3); }
    LAPTOP_FN static unsigned query_shared_rank(const void* p) { return laptop::owner_rank(p); }
    template <class T> LAPTOP_FN static T* map_shared_rank(T* p, unsigned rank) {
        return (T*)laptop::in_block_of_cluster(p, rank, LAPTOP_SITE);
    }

private:
    LAPTOP_FN static dim3 laptop_three(int which) {
        return dim3(laptop::in_cluster(which, 0), laptop::in_cluster(which, 1), laptop::in_cluster(which, 2));
    }
};
LAPTOP_FN cluster_group this_cluster() { return {}; }
LAPTOP_FN void sync(const cluster_group&) { laptop::cluster_arrive(false, LAPTOP_SITE), laptop::cluster_wait(LAPTOP_SITE); }
// The grids of several cards, which CUDA 13 no longer has: an error where it is asked for.
class multi_grid_group {
public:
    static void sync() {}
    static bool is_valid() { return false; }
    static unsigned grid_rank() { return 0; }
    static unsigned num_grids() { return 1; }
    static unsigned long long thread_rank() { return 0; }
    static unsigned long long size() { return 0; }
};
LAPTOP_FN void sync(const multi_grid_group&) {}
LAPTOP_FN multi_grid_group this_multi_grid() {
    laptop::not_supported("cooperative_groups::this_multi_grid (grids of several cards)", LAPTOP_SITE);
}

namespace experimental {                 // where tiles of several warps once were
using namespace ::cooperative_groups;
}
}  // namespace cooperative_groups
