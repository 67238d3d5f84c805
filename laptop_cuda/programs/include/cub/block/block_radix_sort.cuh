// CUB's sort of a block's keys, perhaps with values: stable passes of RADIX_BITS bits, from the lowest on. Each counts its
// digits per thread, sums the counts over the block and exchanges the items. CUB packs its counters; these are 16 bits each.
#pragma once
#include "../util_type.cuh"
#include "block_exchange.cuh"

namespace cub {

template <class Key, int BLOCK_X, int ITEMS, class Value = NullType, int RADIX_BITS = 4, bool = true,
          BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockRadixSort {
    static constexpr int THREADS = BLOCK_X * BLOCK_Y * BLOCK_Z, DIGITS = 1 << RADIX_BITS, BITS = 8 * sizeof(Key);
    typedef BlockScan<int, BLOCK_X, BLOCK_SCAN_WARP_SCANS, BLOCK_Y, BLOCK_Z> Scan;
    typedef BlockExchange<Key, BLOCK_X, ITEMS, false, BLOCK_Y, BLOCK_Z> Keys;
    typedef BlockExchange<Value, BLOCK_X, ITEMS, false, BLOCK_Y, BLOCK_Z> Values;

public:
    union alignas(16) TempStorage {
        struct {
            unsigned short count[DIGITS * THREADS];            // of a digit's, thread by thread
            typename Scan::TempStorage scan;
        } rank;
        typename Keys::TempStorage keys;
        typename Values::TempStorage values;
    };
    LAPTOP_FN explicit BlockRadixSort(TempStorage& temp) : temp(temp) {}
#define LAPTOP_SORTS(name, descending, striped)                                                               \
    LAPTOP_FN void name(Key (&keys)[ITEMS], int begin = 0, int end = BITS) {                                  \
        NullType none[ITEMS];                                                                                 \
        sort(keys, none, descending, striped, begin, end, LAPTOP_SITE);                                       \
    }                                                                                                         \
    template <class V = Value>                                                                                \
    LAPTOP_FN void name(Key (&keys)[ITEMS], V (&values)[ITEMS], int begin = 0, int end = BITS) {              \
        static_assert(std::is_same<V, Value>::value, "BlockRadixSort of other values than it was made for");  \
        sort(keys, values, descending, striped, begin, end, LAPTOP_SITE);                                     \
    }
    LAPTOP_SORTS(Sort, false, false) LAPTOP_SORTS(SortDescending, true, false)
    LAPTOP_SORTS(SortBlockedToStriped, false, true)
    LAPTOP_SORTS(SortDescendingBlockedToStriped, true, true)
#undef LAPTOP_SORTS

private:
    TempStorage& temp;

    template <class V>
    LAPTOP_QUIET void sort(Key (&keys)[ITEMS], V (&values)[ITEMS], bool descending, bool striped, int begin, int end,
                           const void* site) {
        for (int bit = begin; bit < end; bit += RADIX_BITS) {
            if (bit > begin) laptop::block_barrier(false, site);
            int width = end - bit < RADIX_BITS ? end - bit : RADIX_BITS, digit[ITEMS], rank[ITEMS];
            for (int i = 0; i < ITEMS; ++i) {
                unsigned long long bits = laptop_ordered(keys[i]);
                digit[i] = (int)((descending ? ~bits : bits) >> bit & ((1 << width) - 1));
            }
            ranks(digit, rank, site);
            laptop::block_barrier(false, site);
            bool last = striped && bit + RADIX_BITS >= end;
            Keys(temp.keys).laptop_scatter(keys, rank, last, site);
            if constexpr (!std::is_same<V, NullType>::value) {
                laptop::block_barrier(false, site);
                Values(temp.values).laptop_scatter(values, rank, last, site);
            }
        }
    }
    // The place of each item among all of the block: by digit, then thread, then order in the thread.
    LAPTOP_QUIET void ranks(int (&digit)[ITEMS], int (&rank)[ITEMS], const void* site) {
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x, sum = 0;
        unsigned short *own = temp.rank.count + thread, *part = temp.rank.count + thread * DIGITS;
        for (int d = 0; d < DIGITS; ++d) laptop_store(own + d * THREADS, (unsigned short)0, site);
        for (int i = 0; i < ITEMS; ++i) {
            rank[i] = laptop_load(own + digit[i] * THREADS, site);
            laptop_store(own + digit[i] * THREADS, (unsigned short)(rank[i] + 1), site);
        }
        laptop::block_barrier(false, site);
        for (int d = 0; d < DIGITS; ++d) sum += laptop_load(part + d, site);
        laptop_scanned<int> scanned = Scan(temp.rank.scan).scan(sum, cub::Sum(), site);
        int before = scanned.any ? scanned.before : 0;
        for (int d = 0; d < DIGITS; ++d) {
            int count = laptop_load(part + d, site);
            laptop_store(part + d, (unsigned short)before, site);
            before += count;
        }
        laptop::block_barrier(false, site);
        for (int i = 0; i < ITEMS; ++i) rank[i] += laptop_load(own + digit[i] * THREADS, site);
    }
};
}  // namespace cub
