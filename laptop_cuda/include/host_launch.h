// kernel<<<grid, block, shared, stream>>>(...) in host code, as the rewriter writes it.
#pragma once
#include <cuda_runtime.h>
#include <utility>

namespace laptop {

struct launch_config {
    dim3 grid, block;
    size_t shared;
    launch_config(dim3 g, dim3 b, size_t s = 0, cudaStream_t = 0) : grid(g), block(b), shared(s) {}
};

// `kernel` is a lambda that calls the kernel; the arguments were evaluated once and are copied for each thread.
template <class F, class... A>
LAPTOP_FN int host_launch(const char* name, int, F kernel, launch_config config, A... arguments) {
    const unsigned grid[3] = {config.grid.x, config.grid.y, config.grid.z};
    const unsigned block[3] = {config.block.x, config.block.y, config.block.z};
    auto run = [&] { kernel(arguments...); };
    return launch_from_host(name, grid, block, config.shared, [](void** f) { (*(decltype(run)*)*f)(); }, (void*)&run);
}

// A host function called from Python: what it returns is dropped.
template <class R, class... P, size_t... I>
void call_host(R (*function)(P...), void** args, std::index_sequence<I...>) {
    (void)function(*(std::remove_cv_t<std::remove_reference_t<P>>*)args[I]...);
}
template <class R, class... P>
void call_host(R (*function)(P...), void** args) {
    call_host(function, args, std::index_sequence_for<P...>{});
}

}  // namespace laptop
