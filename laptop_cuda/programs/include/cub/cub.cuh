// What exists here of CUB; a kernel that uses any other name is an error where it is reached.
#pragma once
#include <cuda/functional>
#if __has_include(<cuda/std/algorithm>)
#include <cuda/std/algorithm>
#endif
#include "block/block_radix_sort.cuh"
#include "device/laptop_device.cuh"
#include "util_ptx.cuh"
