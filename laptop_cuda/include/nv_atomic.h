// The atomic functions of CUDA 12.8 that take an order and a scope. Orders stronger than relaxed are fences around the
// operation, as in cuda::atomic. Included where a source names one of them.
#pragma once
#include "cuda_runtime.h"

enum { __NV_ATOMIC_RELAXED, __NV_ATOMIC_CONSUME, __NV_ATOMIC_ACQUIRE, __NV_ATOMIC_RELEASE, __NV_ATOMIC_ACQ_REL,
       __NV_ATOMIC_SEQ_CST };
enum { __NV_THREAD_SCOPE_THREAD, __NV_THREAD_SCOPE_BLOCK, __NV_THREAD_SCOPE_CLUSTER, __NV_THREAD_SCOPE_DEVICE,
       __NV_THREAD_SCOPE_SYSTEM };

LAPTOP_FN void __nv_atomic_thread_fence(int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    if (order != __NV_ATOMIC_RELAXED) laptop::memory_fence(scope > __NV_THREAD_SCOPE_BLOCK);
}

namespace laptop {
template <class T> using exactly = typename same<T>::type;

template <class T, class F>
LAPTOP_QUIET T nv_atomic(const volatile T* p, int order, int scope, F change, const void* site, int how = 0) {
    __nv_atomic_thread_fence(order, scope);
    T old = atomic(const_cast<T*>(p), change, site, how | (scope <= __NV_THREAD_SCOPE_BLOCK));
    __nv_atomic_thread_fence(order, scope);
    return old;
}
template <class T>
LAPTOP_QUIET bool nv_compared(volatile T* p, T* expected, T v, int order, int scope, const void* site) {
    will_read(expected, sizeof(T), site);
    T want = *expected;
    T old = nv_atomic(p, order, scope, [=](T old) LAPTOP_QUIET -> T { return old == want ? v : old; }, site, COMPARES);
    if (old == want) return true;
    will_write(expected, sizeof(T), site);
    return *expected = old, false;
}
}  // namespace laptop

template <class T>
LAPTOP_FN T __nv_atomic_load_n(const volatile T* p, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    return laptop::nv_atomic(p, order, scope, [](T old) LAPTOP_QUIET -> T { return old; }, LAPTOP_SITE);
}
template <class T> LAPTOP_FN void __nv_atomic_load(const volatile T* p, laptop::exactly<T>* result, int order,
                                int scope = __NV_THREAD_SCOPE_SYSTEM) {
    laptop::will_write(result, sizeof(T), LAPTOP_SITE);
    *result = laptop::nv_atomic(p, order, scope, [](T old) LAPTOP_QUIET -> T { return old; }, LAPTOP_SITE);
}
template <class T>
LAPTOP_FN T __nv_atomic_exchange_n(volatile T* p, laptop::exactly<T> v, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    return laptop::nv_atomic(p, order, scope, [v](T) LAPTOP_QUIET -> T { return v; }, LAPTOP_SITE);
}
template <class T>
LAPTOP_FN void __nv_atomic_exchange(volatile T* p, laptop::exactly<T>* value, laptop::exactly<T>* result, int order,
                                    int scope = __NV_THREAD_SCOPE_SYSTEM) {
    laptop::will_read(value, sizeof(T), LAPTOP_SITE);
    laptop::will_write(result, sizeof(T), LAPTOP_SITE);
    T v = *value;
    *result = laptop::nv_atomic(p, order, scope, [v](T) LAPTOP_QUIET -> T { return v; }, LAPTOP_SITE);
}
template <class T>
LAPTOP_FN void __nv_atomic_store_n(volatile T* p, laptop::exactly<T> v, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    laptop::nv_atomic(p, order, scope, [v](T) LAPTOP_QUIET -> T { return v; }, LAPTOP_SITE);
}
template <class T>
LAPTOP_FN void __nv_atomic_store(volatile T* p, laptop::exactly<T>* value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    laptop::will_read(value, sizeof(T), LAPTOP_SITE);
    T v = *value;
    laptop::nv_atomic(p, order, scope, [v](T) LAPTOP_QUIET -> T { return v; }, LAPTOP_SITE);
}
// `weak` is a hint; the order of a failure is no stronger than that of success.
template <class T>
LAPTOP_FN bool __nv_atomic_compare_exchange_n(volatile T* p, laptop::exactly<T>* expected, laptop::exactly<T> v, bool, int order,
                                              int, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    return laptop::nv_compared(p, expected, v, order, scope, LAPTOP_SITE);
}
template <class T>
LAPTOP_FN bool __nv_atomic_compare_exchange(volatile T* p, laptop::exactly<T>* expected, laptop::exactly<T>* value, bool, int order,
                                            int, int scope = __NV_THREAD_SCOPE_SYSTEM) {
    laptop::will_read(value, sizeof(T), LAPTOP_SITE);
    return laptop::nv_compared(p, expected, *value, order, scope, LAPTOP_SITE);
}
#define LAPTOP_NV_ATOMIC(name, Result, expression)                                                              \
    template <class T>                                                                                          \
    LAPTOP_FN Result name(volatile T* p, laptop::exactly<T> v, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {  \
        return (Result)laptop::nv_atomic(p, order, scope, [v](T old) LAPTOP_QUIET -> T { return expression; }, LAPTOP_SITE); \
    }
#define LAPTOP_NV_ATOMICS(operation, expression)                       \
    LAPTOP_NV_ATOMIC(__nv_atomic_fetch_##operation, T, expression)     \
    LAPTOP_NV_ATOMIC(__nv_atomic_##operation, void, expression)
LAPTOP_NV_ATOMICS(add, old + v) LAPTOP_NV_ATOMICS(sub, old - v)
LAPTOP_NV_ATOMICS(and, old & v) LAPTOP_NV_ATOMICS(or, old | v)
LAPTOP_NV_ATOMICS(xor, old ^ v) LAPTOP_NV_ATOMICS(min, v < old ? v : old)
LAPTOP_NV_ATOMICS(max, v > old ? v : old)
#undef LAPTOP_NV_ATOMICS
#undef LAPTOP_NV_ATOMIC
