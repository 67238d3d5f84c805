// Launches from device code. A child is kept, with its arguments copied, until the grid that launched it has ended;
// then it runs, with its own children, before its parent's next child. So a grid ends with its children.
#include <algorithm>
#include <new>

#include "programs.h"
#include "runtime_settled.h"

namespace laptop {

constexpr uint32_t DEEPEST = 24;                 // CUDA's limit of nesting
constexpr std::align_val_t CLOSURE_ALIGNMENT{128};

Queued::Queued(const Child& child, const laptop_parent& by) : what(child), parent(by) {
    what.closure = operator new(child.bytes, CLOSURE_ALIGNMENT);
    child.copy(what.closure, child.closure);
}
Queued::Queued(Queued&& other) : what(other.what), parent(other.parent) { other.what.closure = nullptr; }
Queued& Queued::operator=(Queued&& other) {
    std::swap(what, other.what);
    std::swap(parent, other.parent);
    return *this;
}
Queued::~Queued() {
    if (!what.closure) return;
    what.end(what.closure);
    operator delete(what.closure, CLOSURE_ALIGNMENT);
}

// Memory that ends with the launching grid is nothing to its children.
void check_child_pointer(const char* kernel, const void* p, const void* site) {
    const Block& b = *current->warp->block;
    bool shared = is_shared(p);
    bool local = !shared && std::any_of(b.threads.begin(), b.threads.end(), [&](const Thread& t) {
        return t.stack.low && (uintptr_t)p - (uintptr_t)t.stack.low < t.stack.bytes;
    });
    if (!shared && !local) return;
    laptop_error e = make_error("bad launch", shared ? "shared memory for a child" : "local memory for a child", site, 0);
    e.detail = kernel;
    fail(e);
}

static std::vector<Queued>& children_of(Run& r) {
    if (!r.children) r.children = std::make_shared<std::vector<Queued>>();
    return *(std::vector<Queued>*)r.children.get();
}

static laptop_launch launch_of(const Queued& child, const laptop_launch& by) {
    laptop_launch l = by;
    l.parent = &child.parent;
    l.entry = child.what.entry;
    l.kernel = child.what.kernel;
    std::copy_n(child.what.grid, 3, l.grid);
    std::copy_n(child.what.block, 3, l.block);
    l.shared_bytes = child.what.shared_bytes;
    l.max_threads = 0;
    std::fill_n(l.cluster, 3, 0u);
    l.n_addresses = 0;
    return l;
}

// What the runtime does for the kernel's thread without its hooks: the copy of an argument may be a function of its own.
void launch_from_kernel(const Child& child, const void* site) {
    Thread* t = current;
    uint32_t depth = run->launch->parent ? run->launch->parent->depth + 1 : 1;
    if (depth > DEEPEST) {
        laptop_error e = make_error("bad launch", "nested too deep", site, 0);
        e.offset = DEEPEST;
        e.detail = child.kernel;
        fail(e);
    }
    Busy busy;
    current = nullptr;
    const laptop_launch& l = *run->launch;
    laptop_parent by = {l.kernel, {}, {}, party(t, code_offset(site), 0), child.line, depth};
    std::copy_n(l.grid, 3, by.grid);
    std::copy_n(l.block, 3, by.block);
    children_of(*run).emplace_back(child, by);
    current = t;
    if (refused(launch_of(children_of(*run).back(), l)).kind) t->last_error = INVALID_CONFIGURATION;
}

// What children come to, theirs included. A launch that is refused (a grid without blocks) ends nothing.
static void add(Ended& to, const Ended& other) {
    to.failed |= other.failed;
    to.interrupted |= other.interrupted;
    if (!to.code || is_refusal(to.code)) to.code = other.code ? other.code : to.code;
}
static bool stops(const Ended& e) { return e.interrupted || (e.code && !is_refusal(e.code)); }

void run_children(const laptop_launch& parent, Run& of, bool with_tail) {
    if (!of.children) return;
    std::vector<Queued> children = std::move(children_of(of)), &later = children_of(of);
    later.clear();
    auto tail = std::stable_partition(children.begin(), children.end(), [](const Queued& c) { return !c.what.last; });
    if (!with_tail) {
        std::move(tail, children.end(), std::back_inserter(later));
        children.erase(tail, children.end());
    }
    for (Queued& child : children) {
        if (of.error.kind || stops(of.ended)) break;
        laptop_launch l = launch_of(child, parent);
        void* closure[1] = {child.what.closure};
        int32_t no_array[1] = {-1};
        l.args = closure;
        l.arg_array = no_array;
        l.n_args = 1;
        std::unique_ptr<Result> result(run_once(l, &of));
        if (l.child_done) l.child_done(&l, result.get()), result->run->printed.clear();
        run_children(l, *result->run, true);
        add(of.ended, result->run->ended);
        end_launch(*result, false);
    }
}

// cudaDeviceSynchronize in a kernel
// The children of the grid run while its fibers wait.
void await_children(const void* site) {
    if (!current || children_of(*run).empty()) return;
    current->site = site;
    park(State::CHILDREN);
}

static bool run_awaited(Block& b) {
    unsigned waiting = 0;
    for (Thread& t : b.threads) waiting += t.state == State::CHILDREN;
    if (!waiting) return false;
    Coordinates block_index = blockIdx, block_size = blockDim, grid_size = gridDim;
    {
        Unwatched unwatched;
        run_children(*run->launch, *run, false);
    }
    blockIdx = block_index, blockDim = block_size, gridDim = grid_size;
    warpSize = (int)run->warp_size;
    if (stops(run->ended)) escape();
    for (Thread& t : b.threads) {
        if (t.state == State::CHILDREN) wake(&t);
    }
    refresh_heap();
    settle_in(b);
    return true;
}

static const bool runs = (seams.run_children = [](const laptop_launch& l, Run& of) { run_children(l, of, true); },
                          seams.run_awaited = run_awaited, true);
}  // namespace laptop
