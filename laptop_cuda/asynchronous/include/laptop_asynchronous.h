// mbarrier, bulk copies, the proxies' fence and the products of a warpgroup for kernels: for inline PTX, cuda::ptx and cuda::device.
#pragma once
#include "engine.h"

namespace laptop {
void mbarrier_init(void* b, uint32_t count, const void* site);
void mbarrier_inval(void* b, const void* site);
// The phase as a state. `of_block`: what it releases, and a wait acquires, is for the threads of its own block.
uint64_t mbarrier_arrive(void* b, uint32_t count, uint32_t bytes, bool drop, bool of_block, const void* site);
bool mbarrier_is_last(void* b, uint32_t count, const void* site);       // such arrivals end its phase
void mbarrier_expect(void* b, int64_t bytes, const void* site);          // fewer: they have come
bool mbarrier_wait(void* b, uint64_t state_or_parity, bool by_parity, bool blocks, bool of_block, const void* site);
// cp.async.mbarrier.arrive, `counted` among those that its phase expects (.noinc) or beyond them.
void mbarrier_arrive_after_copies(void* b, bool counted, const void* site);
void mbarrier_announce();                                                // fence.mbarrier_init
// What a reduction makes of numbers that are there: add, min, max, inc, dec, and, or, xor, by their place here; 8: they are
// overwritten. Types are numbered as for cuTensorMapEncodeTiled.
constexpr uint8_t BYTES_OF[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
struct Reduction {
    uint8_t how = 8, type = 0;
    LAPTOP_QUIET explicit operator bool() const { return how < 8; }
};
// Null: of a group. `mask`: the blocks of the cluster, by rank; 0: that of the address.
void bulk_copy(void* to, const void* from, uint32_t bytes, void* barrier, uint32_t mask, const void* site, Reduction = {});
void store_async(void* to, const void* value, uint32_t bytes, void* barrier, const void* site, Reduction = {});
// What a CUtensorMap holds here; rows of a tensor and of a box go from the innermost dimension out. Interleaved, the
// innermost is W, of slices of 16 or 32 bytes of channels; the slices themselves are the last but one.
struct TensorMap {
    static constexpr uint32_t MADE = 0x6d617054;
    uint32_t made;               // by cuTensorMapEncodeTiled or ...Im2col
    uint8_t rank, itemsize, swizzle, fill;       // swizzle: 0, 32, 64, 128; fill: with NaN
    char* data;
    uint64_t sizes[5], strides[5];               // in elements, in bytes
    uint16_t box[5];                             // by im2col: channels, pixels
    uint8_t steps[5], type;
    int16_t lower[3], upper[3];                  // im2col's corners of W, H, D
    uint8_t interleave, atom, im2col;            // bytes of a slice; of what a swizzle moves, and 1 more: its halves change places
};
static_assert(sizeof(TensorMap) <= 128, "a tensor map has 128 bytes");
// Null: from shared memory to the tensor, of a group. `offsets`: of im2col.
void tensor_copy(void* shared, const void* map, const int* at, int rank, void* barrier, uint32_t mask, const void* site,
                 uint8_t how = 8, const int* offsets = nullptr);
void bulk_commit();
void bulk_wait(uint32_t groups_left, bool read);
void proxy_fence(bool global = true, bool shared = true);
// wgmma. A type is its first letter: f32, s32, half (f16), bf16, tf32, e4m3 as '4', e5m2 as '5', s8, u8.
struct Form {
    uint16_t n;
    char d, a, b;
    bool saturates;
};
struct Factor {
    uint64_t descriptor;         // of shared memory, unless it is in registers
    const uint32_t* registers;
    bool negated, by_columns;    // its elements along m or n lie side by side, not those along k
    const void* const* places = nullptr;         // of the four registers' variables, and the frame that names them
    const void* frame = nullptr;
};
void product(const Form&, uint32_t* const* sums, Factor a, Factor b, bool adds, const void* site);
void product_fence();
void product_commit();
void product_wait(uint32_t groups_left, const void* site);
void set_registers(uint32_t to, bool more, const void* site);
// `what` names the argument and the rule, after the kernel's name.
[[noreturn]] void breaks_rule(const char* kind, const char* what, const void* site);

namespace ptx {
LAPTOP_FN void multiply(const Form& form, uint32_t* const* sums, Factor a, Factor b, bool adds) {
    product(form, sums, a, b, adds, LAPTOP_SITE);
}
LAPTOP_FN void no_shape(const char* what) { breaks_rule("bad descriptor", what, LAPTOP_SITE); }
LAPTOP_FN void registers(uint32_t to, bool more) { set_registers(to, more, LAPTOP_SITE); }
LAPTOP_FN void wait_for_products(uint32_t groups_left) { product_wait(groups_left, LAPTOP_SITE); }
LAPTOP_FN void barrier_init(void* b, uint32_t count) {
    if (!is_shared(b)) trap("mbarrier.init outside of shared memory", LAPTOP_SITE);
    mbarrier_init(b, count, LAPTOP_SITE);
}
LAPTOP_FN void barrier_inval(void* b) { mbarrier_inval(b, LAPTOP_SITE); }
LAPTOP_FN uint64_t barrier_arrive(void* b, uint32_t count, uint32_t bytes, bool drop, bool of_block) {
    return mbarrier_arrive(b, count, bytes, drop, of_block, LAPTOP_SITE);
}
LAPTOP_FN void barrier_after_copies(void* b, bool counted) { mbarrier_arrive_after_copies(b, counted, LAPTOP_SITE); }
LAPTOP_FN void barrier_expect(void* b, int64_t bytes) { mbarrier_expect(b, bytes, LAPTOP_SITE); }
LAPTOP_FN bool barrier_wait(void* b, uint64_t state, bool by_parity, bool blocks, bool of_block) {
    return mbarrier_wait(b, state, by_parity, blocks, of_block, LAPTOP_SITE);
}
LAPTOP_FN void copy_bulk(void* to, const void* from, uint32_t bytes, void* barrier, uint32_t mask, Reduction r = {}) {
    bulk_copy(to, from, bytes, barrier, mask, LAPTOP_SITE, r);
}
template <int BYTES, int COUNT>
LAPTOP_FN void store_later(void* to, const unsigned long long (&d)[COUNT], void* barrier, Reduction r = {}) {
    char held[BYTES * COUNT];
    for (int i = 0; i < COUNT; ++i) __builtin_memcpy(held + BYTES * i, &d[i], BYTES);
    store_async(to, held, sizeof held, barrier, LAPTOP_SITE, r);
}
template <int RANK>
LAPTOP_FN void copy_tensor(void* shared, const void* map, const int (&at)[RANK], void* barrier, uint32_t mask, uint8_t how = 8,
                           const int* offsets = nullptr) {
    tensor_copy(shared, map, at, RANK, barrier, mask, LAPTOP_SITE, how, offsets);
}
}  // namespace ptx
}  // namespace laptop
