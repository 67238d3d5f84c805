// kernel<<<grid, block, shared, stream>>>(...) in device code. Included only for files that have it.
#pragma once
#include <new>

#define cudaStreamTailLaunch ((cudaStream_t)3)
#define cudaStreamFireAndForget ((cudaStream_t)4)

namespace laptop {

template <class T> LAPTOP_FN void check_argument(const char*, const T&, const void*) {}
template <class T> LAPTOP_FN void check_argument(const char* kernel, T* p, const void* site) {
    check_child_pointer(kernel, (const void*)p, site);
    note_pointer(p);
}

template <class Run> struct Closure {
    static_assert(alignof(Run) <= 128, "an argument of a kernel is aligned to at most 128 bytes");
    LAPTOP_QUIET static void call(void** f) { (*(Run*)*f)(); }
    LAPTOP_QUIET static void copy(void* to, void* from) { new (to) Run(*(Run*)from); }
    LAPTOP_QUIET static void end(void* f) { ((Run*)f)->~Run(); }
};

template <class F, class... A>
LAPTOP_FN int device_launch(const char* name, int line, F& kernel, const launch_config& config, const void* site,
                            A&... arguments) {
    (check_argument(name, arguments, site), ...);
    // Not `mutable`: compilers differ in where an attribute goes beside it.
    auto run = [=]() LAPTOP_QUIET { kernel(const_cast<A&>(arguments)...); };
    typedef Closure<decltype(run)> Of;
    Child child = {name, (unsigned)line, {config.grid.x, config.grid.y, config.grid.z},
                   {config.block.x, config.block.y, config.block.z}, config.shared, config.stream == cudaStreamTailLaunch,
                   &Of::call, (void*)&run, sizeof run, &Of::copy, &Of::end};
    launch_from_kernel(child, site);
    return 0;
}
}  // namespace laptop
