// OpenMP in host code. Where it is off, or the compiler has none (clang and zig as they are installed), its
// pragmas are ignored and these are its functions on one thread.
#ifdef _OPENMP
#include_next <omp.h>
#else
#pragma once
#include <time.h>

inline int omp_get_thread_num() { return 0; }
inline int omp_get_num_threads() { return 1; }
inline int omp_get_max_threads() { return 1; }
inline int omp_get_num_procs() { return 1; }
inline int omp_in_parallel() { return 0; }
inline void omp_set_num_threads(int) {}
inline void omp_set_dynamic(int) {}
inline double omp_get_wtime() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
