// What launches and copies need to know of CUDA graphs. Included only for sources that use them: it costs build time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace laptop {
// While a stream is captured its work is put into a graph (graphs.h) instead of being done.
struct Capture {
    void (*add)(void* graph, std::function<cudaError_t()> work) = nullptr;
    void* graph = nullptr;
};
inline Capture& capture() {
    static Capture c;
    return c;
}
template <class F>
cudaError_t now_or_captured(F work) {
    Capture& c = capture();
    if (!c.graph) return work();
    c.add(c.graph, work);
    return cudaSuccess;
}
}  // namespace laptop
