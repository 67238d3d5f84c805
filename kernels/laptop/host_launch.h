// kernel<<<grid, block, shared, stream>>>(...) in host code, as the rewriter writes it.
#pragma once
#include <cuda_runtime.h>

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

}  // namespace laptop
