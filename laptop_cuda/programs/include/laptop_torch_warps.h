// Names of torch outside its namespaces, which some sources define for themselves: with its headers that have them.
#pragma once
#include "laptop_torch.h"

template <typename T> LAPTOP_TORCH constexpr T THCCeilDiv(T a, T b) { return (a + b - 1) / b; }
constexpr unsigned LAPTOP_ALL_LANES = 0xffffffff;
template <typename T> LAPTOP_TORCH T WARP_SHFL(T v, int lane, int width = 32, unsigned mask = LAPTOP_ALL_LANES) {
    return __shfl_sync(mask, v, lane, width);
}
template <typename T> LAPTOP_TORCH T WARP_SHFL_XOR(T v, int lane, int width = 32, unsigned mask = LAPTOP_ALL_LANES) {
    return __shfl_xor_sync(mask, v, lane, width);
}
template <typename T> LAPTOP_TORCH T WARP_SHFL_UP(T v, unsigned by, int width = 32, unsigned mask = LAPTOP_ALL_LANES) {
    return __shfl_up_sync(mask, v, by, width);
}
template <typename T> LAPTOP_TORCH T WARP_SHFL_DOWN(T v, unsigned by, int width = 32, unsigned mask = LAPTOP_ALL_LANES) {
    return __shfl_down_sync(mask, v, by, width);
}
LAPTOP_TORCH unsigned WARP_BALLOT(int predicate, unsigned mask = LAPTOP_ALL_LANES) { return __ballot_sync(mask, predicate); }
