// Memory for the runtime in WebAssembly: it only grows, as each launch has an instance of its own.
#pragma once
#include <stddef.h>

enum { PROT_NONE = 0, PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32 };
#define MAP_ANONYMOUS MAP_ANONYMOUS
#define MAP_FAILED ((void*)-1)
void* mmap(void* where, size_t bytes, int access, int flags, int file, long at);
inline int munmap(void*, size_t) { return 0; }
inline int mprotect(void*, size_t, int) { return 0; }
