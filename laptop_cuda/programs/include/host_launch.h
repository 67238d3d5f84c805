// kernel<<<grid, block, shared, stream>>>(...) in host code, as the rewriter writes it.
#pragma once
#include <cuda_runtime.h>
#include <typeinfo>
#include "cuda_runtime_api.h"
#include "each_thread.h"

namespace laptop {

struct launch_config {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    launch_config(dim3 g, dim3 b, size_t s = 0, cudaStream_t on = 0) : grid(g), block(b), shared(s), stream(on) {}
};

template <class T> LAPTOP_FN void note_pointer(const T&) {}
template <class T> LAPTOP_FN void note_pointer(T* p) { device_pointer_type((const void*)p, sized<std::remove_cv_t<T>>::value); }

#ifdef LAPTOP_NESTED
}  // namespace laptop
#include "device_launch.h"
namespace laptop {
#endif

template <class T> bool device_variable(const char* name, T& v, bool managed) {
    typedef std::remove_all_extents_t<T> E;
    return std::is_const<E>::value || device_variable(name, (const void*)&v, sizeof v, managed ? 0 : sizeof(E));
}

// How a launch is made, known by its type from the moment on at which its library is loaded.
template <class Run> struct Entry {
    LAPTOP_QUIET static void call(void** f) { (*(Run*)*f)(); }
    static const bool known;
};
template <class Run> const bool Entry<Run>::known = know_entry(typeid(Run).name(), &Entry<Run>::call);

// `kernel` is a lambda that calls the kernel. The work is done when this returns.
template <class F, class... A>
LAPTOP_FN int launch_with(const char* name, F& kernel, const launch_config& config, const void* site, A&... arguments) {
    if (in_kernel()) not_supported("a kernel launched from device code by a name that hides it", site);
    const unsigned grid[3] = {config.grid.x, config.grid.y, config.grid.z};
    const unsigned block[3] = {config.block.x, config.block.y, config.block.z};
    (note_pointer(arguments), ...);
    Issued now(config.stream, name, site, false);
    auto run = [&]() LAPTOP_QUIET { kernel(arguments...); };
    typedef Entry<decltype(run)> Made;
    return launch_from_host(name, grid, block, config.shared, Made::known ? &Made::call : nullptr, (void*)&run);
}
// The arguments were evaluated once and are copied for each thread,
template <class F, class... A>
LAPTOP_FN int host_launch(const char* name, [[maybe_unused]] int line, F kernel, launch_config config, A... arguments) {
#ifdef LAPTOP_NESTED
    if (in_kernel()) return device_launch(name, line, kernel, config, LAPTOP_SITE, arguments...);
#endif
    return launch_with(name, kernel, config, LAPTOP_SITE, arguments...);
}
// or, of a kernel with a parameter that is a reference, are the host's own.
template <class F, class... A>
LAPTOP_FN int host_launch_by_reference(const char* name, [[maybe_unused]] int line, F kernel, launch_config config,
                                       A&&... arguments) {
#ifdef LAPTOP_NESTED
    if (in_kernel()) return device_launch(name, line, kernel, config, LAPTOP_SITE, arguments...);
#endif
    return launch_with(name, kernel, config, LAPTOP_SITE, arguments...);
}

// cudaLaunchKernel and cudaLaunchCooperativeKernel: the arguments are found behind pointers.
template <class... P, size_t... I>
cudaError_t launch_pointers(void (*kernel)(P...), const char* name, dim3 g, dim3 b, void** args, size_t shared,
                            cudaStream_t stream, std::index_sequence<I...>) {
    auto call = [kernel](auto... a) { kernel(a...); };
    return (cudaError_t)host_launch(name, 0, call, launch_config(g, b, shared, stream),
                                    *(std::remove_cv_t<std::remove_reference_t<P>>*)args[I]...);
}
template <class... P>
cudaError_t launch_kernel(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, void** args, size_t shared = 0,
                          cudaStream_t stream = nullptr) {
    return launch_pointers(kernel, name, grid, block, args, shared, stream, std::index_sequence_for<P...>{});
}
template <class... P>
cudaError_t launch_cooperative(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, void** args, size_t shared = 0,
                               cudaStream_t stream = nullptr) {
    return asked().cooperative = true, launch_kernel(name, kernel, grid, block, args, shared, stream);
}
// cudaLaunchKernelEx. What it may ask for beside clusters changes nothing here.
template <class... P, class... A>
cudaError_t launch_kernel(const char* name, const cudaLaunchConfig_t* c, void (*kernel)(P...), A&&... arguments) {
    for (unsigned i = 0; i < c->numAttrs; ++i) {
        auto size = c->attrs[i].val.clusterDim;
        Asked& a = asked();
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) a.cluster[0] = size.x, a.cluster[1] = size.y, a.cluster[2] = size.z;
        if (c->attrs[i].id == cudaLaunchAttributeCooperative) a.cooperative = c->attrs[i].val.cooperative;
    }
    launch_config config(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream);
    auto call = [kernel](auto... a) { kernel(a...); };
    return (cudaError_t)host_launch(name, 0, call, config, (std::remove_cv_t<std::remove_reference_t<P>>)arguments...);
}

template <class... P, size_t... I>
cudaError_t launch_pointers_ex(const char* name, const cudaLaunchConfig_t* c, void (*kernel)(P...), void** args,
                               std::index_sequence<I...>) {
    return launch_kernel(name, c, kernel, *(std::remove_cv_t<std::remove_reference_t<P>>*)args[I]...);
}
template <class... P>
cudaError_t launch_kernel_c(const char* name, const cudaLaunchConfig_t* c, void (*kernel)(P...), void** args) {
    return launch_pointers_ex(name, c, kernel, args, std::index_sequence_for<P...>{});
}

// A host function called from Python: its result is dropped.
template <class R, class... P, size_t... I>
void call_host(R (*function)(P...), void** args, std::index_sequence<I...>) {
    (void)function(*(std::remove_cv_t<std::remove_reference_t<P>>*)args[I]...);
}
template <class R, class... P> void call_host(R (*function)(P...), void** args) {
    call_host(function, args, std::index_sequence_for<P...>{});
}

// main, whichever of its forms a program has
inline int call_main(int (*main)(), int, char**, char**) { return main(); }
template <class C> int call_main(int (*main)(int, C), int n, char** words, char**) { return main(n, (C)words); }
template <class C> int call_main(int (*main)(int, C, char**), int n, char** words, char** environment) {
    return main(n, (C)words, environment);
}
template <class... P> int call_main(void (*main)(P...), int n, char** words, char** environment) {
    return call_main((int (*)(P...))main, n, words, environment), 0;
}
}  // namespace laptop
