// Pairs of 8-bit floats in inline PTX. Included where a source names e4m3 or e5m2 beside an asm.
#pragma once
#include "cuda_fp8.h"
#include "ptx.h"

namespace laptop {
namespace ptx {
LAPTOP_FN uint16_t to_pair8(float high, float low, __nv_fp8_interpretation_t kind, bool no_negatives) {
    if (no_negatives) high = relu(high), low = relu(low);
    return uint16_t(narrow8(high, __NV_SATFINITE, kind) << 8 | narrow8(low, __NV_SATFINITE, kind));
}
LAPTOP_FN f16x2 of_pair8(uint16_t both, __nv_fp8_interpretation_t kind, bool no_negatives) {
    f16x2 made = {f16(widen8((unsigned char)both, kind)), f16(widen8((unsigned char)(both >> 8), kind))};
    return no_negatives ? relu(made) : made;
}
// A matrix fragment's register of four.
template <__nv_fp8_interpretation_t KIND> struct of_float8 {
    static constexpr int PER = 4;
    LAPTOP_QUIET static double read(uint32_t r, int i) { return widen8((unsigned char)(r >> 8 * i), KIND); }
};
}  // namespace ptx
}  // namespace laptop
