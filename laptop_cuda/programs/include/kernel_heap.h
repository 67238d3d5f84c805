// The heap of kernels, as the rewriter writes it: `new (laptop::heap) T`, `laptop::heap_delete(p)`.
#pragma once
#include <cuda_runtime.h>

#include "laptop_host.h"

namespace laptop {
struct Heap {};
constexpr Heap heap;
LAPTOP_FN void* heap_malloc(size_t bytes) { return kernel_malloc(bytes, LAPTOP_SITE); }
LAPTOP_FN void heap_free(void* p) { kernel_free(p, LAPTOP_SITE); }
template <class T> LAPTOP_FN void heap_delete(T* p) {
    if (p) p->~T();
    kernel_free((void*)p, LAPTOP_SITE);
}
// Before the elements of an array that are to be destroyed is their number.
template <class T> LAPTOP_FN void heap_delete_array(T* p) {
    size_t before = std::is_trivially_destructible<T>::value ? 0 : sizeof(size_t) > alignof(T) ? sizeof(size_t) : alignof(T);
    for (size_t n = p && before ? ((const size_t*)p)[-1] : 0; n-- > 0;) p[n].~T();
    kernel_free(p ? (char*)p - before : nullptr, LAPTOP_SITE);
}
}  // namespace laptop
LAPTOP_FN void* operator new(size_t n, laptop::Heap) noexcept { return laptop::kernel_malloc(n, LAPTOP_SITE); }
LAPTOP_FN void* operator new[](size_t n, laptop::Heap) noexcept { return laptop::kernel_malloc(n, LAPTOP_SITE); }
LAPTOP_FN void operator delete(void*, laptop::Heap) noexcept {}
LAPTOP_FN void operator delete[](void*, laptop::Heap) noexcept {}
