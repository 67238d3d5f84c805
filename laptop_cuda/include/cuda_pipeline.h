// Asynchronous copies from global to shared memory, 4, 8 or 16 bytes at a time. Here the bytes arrive at once, but
// touching them before the wait that covers them is an error, as it would be a wrong result on the card.
#pragma once
#include "cuda_runtime.h"

LAPTOP_FN void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zero_fill = 0) {
    laptop::must_align(to, bytes, true, LAPTOP_SITE);
    laptop::must_align(from, bytes, false, LAPTOP_SITE);
    laptop::async_copy(to, from, bytes, LAPTOP_SITE, nullptr, zero_fill);
    laptop::copy_unseen(to, from, bytes - zero_fill);
    laptop::set_unseen((char*)to + bytes - zero_fill, 0, zero_fill);
}
LAPTOP_FN void __pipeline_commit() { laptop::async_commit(); }
LAPTOP_FN void __pipeline_wait_prior(unsigned left) { laptop::async_wait(int(left)); }
