// CUDA C++ for a CPU: the words of the language. The kernels are ordinary C++ functions that the runtime
// calls once for each thread, each call on a fiber of its own. See engine.h for how the pieces fit.
#pragma once
#include <array>
#include <cfloat>
#include <climits>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS     // they are half of a small kernel's build: see special_functions.h
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>      // clock() is the one of C
#include <math.h>     // C++'s own: exp and abs of a float are floats without std::, as in CUDA
#include <stdlib.h>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine.h"
#include "vector_types.h"

// One pass compiles host and device code; both are told that it is device code of sm_80, compiled by nvcc.
#define __DRIVER_TYPES_H__       // NVIDIA's own helper headers ask whether these were included
#define __CUDA_RUNTIME_H__
#define CUDART_VERSION 13000
#define __CUDA_ARCH__ 800
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
// A protected symbol is how the runtime knows a constant from a __device__ variable.
#if defined(__wasm__)             // which has no such symbols
#define __constant__ __attribute__((section("laptop_constants")))
#else
#define __constant__ __attribute__((visibility("protected")))
#endif
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __assume(condition) ((void)0)
#if !defined(__clang__)
#define __builtin_assume(condition) ((void)0)
#endif
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __CUDA_ALIGN__(n) __align__(n)
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)      // the rewriter has it said as the kernel begins
#define __nv_pure__
#define CUDART_CB
#define CUDARTAPI
#define __shared__ this_form_of_shared_declaration_is_not_supported
#ifndef __restrict__
#define __restrict__ __restrict
#endif

// Constant, because each fiber has its own for all its life. The runtime writes them at every switch.
extern const laptop::Index threadIdx, blockIdx, blockDim, gridDim;
extern const int warpSize;                       // 32, unless the machine that is counted has other warps

namespace laptop {

template <class... P, size_t... I>
LAPTOP_FN void call(void (*kernel)(P...), void** args, std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<std::remove_reference_t<P>>*)args[I]...);
}
template <class... P> LAPTOP_FN void call(void (*kernel)(P...), void** args) {
    call(kernel, args, std::index_sequence_for<P...>{});
}

template <class T>
struct same { using type = T; };      // keeps an argument out of template deduction, so that it converts
template <class T> using same_t = typename same<T>::type;
}  // namespace laptop

#include "device_math.h"
#include "device_warp.h"

LAPTOP_FN void __syncthreads() { laptop::block_barrier(false, LAPTOP_SITE); }
LAPTOP_FN int __syncthreads_count(int predicate) { return laptop::block_barrier(predicate != 0, LAPTOP_SITE).count; }
LAPTOP_FN int __syncthreads_or(int predicate) { return laptop::block_barrier(predicate != 0, LAPTOP_SITE).count > 0; }
LAPTOP_FN int __syncthreads_and(int predicate) {
    laptop::Arrived a = laptop::block_barrier(predicate != 0, LAPTOP_SITE);
    return a.count == a.threads;
}
LAPTOP_FN void __threadfence() { laptop::memory_fence(true); }
LAPTOP_FN void __threadfence_block() { laptop::memory_fence(false); }
LAPTOP_FN void __threadfence_system() { laptop::memory_fence(true); }

#define LAPTOP_LOAD(name, will_load)                                  \
    template <class T>                                                \
    LAPTOP_FN T name(const T* p) {                                    \
        if (LAPTOP_TRACED) laptop::will_load(p, sizeof(T), LAPTOP_SITE); \
        return *p;                                                    \
    }
#define LAPTOP_STORE(name)                                            \
    template <class T>                                                \
    LAPTOP_FN void name(T* p, laptop::same_t<T> value) {              \
        if (LAPTOP_TRACED) laptop::will_write(p, sizeof(T), LAPTOP_SITE); \
        *p = value;                                                   \
    }
LAPTOP_LOAD(__ldg, will_read_constant) LAPTOP_LOAD(__ldca, will_read) LAPTOP_LOAD(__ldcg, will_read)
LAPTOP_LOAD(__ldcs, will_read) LAPTOP_LOAD(__ldlu, will_read) LAPTOP_LOAD(__ldcv, will_read)
LAPTOP_STORE(__stwb) LAPTOP_STORE(__stcg) LAPTOP_STORE(__stcs) LAPTOP_STORE(__stwt)
#undef LAPTOP_LOAD
#undef LAPTOP_STORE

LAPTOP_FN size_t __cvta_generic_to_shared(const void* p) { return laptop::shared_address(p); }
LAPTOP_FN void* __cvta_shared_to_generic(size_t address) { return laptop::shared_pointer((uint32_t)address); }
LAPTOP_FN size_t __cvta_generic_to_global(const void* p) { return (size_t)p; }
LAPTOP_FN void* __cvta_global_to_generic(size_t address) { return (void*)address; }
LAPTOP_FN unsigned __isShared(const void* p) { return laptop::is_shared(p); }
LAPTOP_FN unsigned __isLocal(const void* p) { return laptop::is_local(p); }
LAPTOP_FN unsigned __isConstant(const void* p) { return laptop::is_constant(p); }
LAPTOP_FN unsigned __isGlobal(const void* p) { return !__isShared(p) && !__isLocal(p) && !__isConstant(p); }

LAPTOP_FN long long clock64() { return laptop::clock(); }
LAPTOP_FN unsigned long long globaltimer() { return (unsigned long long)laptop::clock(); }
LAPTOP_FN void __nanosleep(unsigned) {}
LAPTOP_FN void __trap() { laptop::trap("__trap", LAPTOP_SITE); }
LAPTOP_FN void __brkpt() {}
LAPTOP_FN void cudaGridDependencySynchronize() {} LAPTOP_FN void cudaTriggerProgrammaticLaunchCompletion() {}

// The library's own memcpy would touch memory that no hook sees.
LAPTOP_FN void* laptop_memcpy(void* to, const void* from, size_t n) {
    if (LAPTOP_TRACED) laptop::will_move(to, from, n, LAPTOP_SITE);
    return laptop::copy_unseen(to, from, n), to;
}
LAPTOP_FN void* laptop_memmove(void* to, const void* from, size_t n) {
    if (LAPTOP_TRACED) laptop::will_move(to, from, n, LAPTOP_SITE);
    return laptop::move_unseen(to, from, n), to;
}
LAPTOP_FN void* laptop_memset(void* to, int value, size_t n) {
    if (LAPTOP_TRACED) laptop::will_write(to, n, LAPTOP_SITE);
    return laptop::set_unseen(to, value, n), to;
}
namespace laptop {
template <class T> LAPTOP_FN const char* string_of(const T&) { return nullptr; }
LAPTOP_FN const char* string_of(const char* s) { return s; }
LAPTOP_FN const char* string_of(char* s) { return s; }
}  // namespace laptop
template <class... A> LAPTOP_FN int laptop_printf(const char* format, A... values) {
    if (LAPTOP_TRACED && !laptop::in_kernel()) {
        const char* strings[] = {laptop::string_of(values)..., nullptr};
        laptop::host_prints(format, strings, sizeof...(A), LAPTOP_SITE);
    }
    int n = laptop::print(format, values...);
    return laptop::in_kernel() && n >= 0 ? (int)sizeof...(A) : n;        // as CUDA: not how many characters
}
// A kernel may not end the process. C's linkage, as headers declare these two once more.
extern "C" {
LAPTOP_FN void laptop_abort() {
    if (laptop::in_kernel()) laptop::trap("abort", LAPTOP_SITE);
    ::abort();
}
LAPTOP_FN void laptop_exit(int status) {
    if (laptop::in_kernel()) laptop::trap("exit", LAPTOP_SITE);
    ::exit(status);
}
}
namespace std {
using ::laptop_abort;
using ::laptop_exit;
using ::laptop_memcpy;
using ::laptop_memmove;
using ::laptop_memset;
using ::laptop_printf;
}
#define memcpy laptop_memcpy
#define memmove laptop_memmove
#define memset laptop_memset
#define printf laptop_printf
#define abort() laptop_abort()
#define exit(status) laptop_exit(status)
#include "assert.h"
