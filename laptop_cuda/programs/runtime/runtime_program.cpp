// Launches from host code: each works on the device memory of its program, and is told when it has ended.
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <set>

#include "programs.h"

namespace laptop {

static struct {
    int mode = LAPTOP_PLAIN, order = LAPTOP_FORWARD;
    uint64_t seed = 0, step_limit = 0;
    void (*done)(const laptop_launch*, const laptop_result*) = nullptr;
    laptop_limit limit = {};
    void (*look)(const laptop_launch*) = nullptr;
} program;
static int last_launch_error = 0, failed = 0;
int& last_error() { return current ? current->last_error : last_launch_error; }
static bool unread = false;                      // the error of the last launch that was refused
void error_was_read() {
    if (!current && unread && last_launch_error) unread = false, tell_parent("{\"looked\": true}\n");
}
int sticky_error() { return current ? 0 : failed; }
bool is_whole_program() { return program.done != nullptr; }
bool is_sanitized() { return program.mode & LAPTOP_SANITIZE; }

void tell(const laptop_launch* l, const laptop_result* result) {
    fputs(result->printed, stdout);
    if (program.done) {
        fflush(stdout);
        program.done(l, result);
    } else if (result->error.kind) {
        fprintf(stderr, "%s: %s (%s)\n", l->kernel, result->error.kind, result->error.reason);
    }
}

static Asked all_asked = {{}, 0, 163 << 10, 0, false};   // the model card's
Asked& asked() { return all_asked; }

// Launches by type and address: that of another build has the same type.
typedef std::pair<const char*, void (*)(void**)> Entrance;
static std::vector<Entrance> entrances;
bool know_entry(const char* type, void (*entry)(void**)) { return entrances.push_back({type, entry}), true; }
static void (*in_other_build(void (*entry)(void**)))(void**) {
    for (Entrance& known : entrances) {
        for (Entrance& other : entrances) {
            if (known.second == entry && other.second != entry && !strcmp(known.first, other.first)) return other.second;
        }
    }
    return nullptr;
}

static void look_at_first(const laptop_launch& l) {
    static std::set<void (*)(void**)> seen;
    constexpr size_t MOST = 8, MOST_BYTES = 64 << 20;
    if (program.look && seen.size() < MOST && device_bytes() <= MOST_BYTES && seen.insert(l.entry).second) program.look(&l);
}

int launch_from_host(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
                     void (*entry)(void**), void* argument) {
    std::lock_guard<std::recursive_mutex> lock(one_at_a_time);
    if (failed) return failed;
    AsDevice as(true);
    laptop_launch l = {};
    l.entry = entry;
    l.kernel = kernel;
    memcpy(l.grid, grid, sizeof l.grid);
    memcpy(l.block, block, sizeof l.block);
    l.shared_bytes = shared_bytes;
    uint64_t most = std::max<uint64_t>(asked().dynamic, 48 << 10);       // of dynamic memory, whichever kernel has asked
    l.shared_limit = asked().dynamic && shared_bytes <= most ? asked().shared_limit : most;
    l.no_grid_sync = !asked().cooperative;
    asked().cooperative = false;
    memcpy(l.cluster, asked().cluster, sizeof l.cluster);
    memset(asked().cluster, 0, sizeof l.cluster);
    l.cluster_limit = asked().cluster_limit;
    l.mode = program.mode, l.order = program.order, l.seed = program.seed, l.step_limit = program.step_limit;
    l.in_place = 1;
    l.limit = program.limit.seconds ? &program.limit : nullptr;
    void* args[1] = {argument};
    int32_t none[1] = {-1};
    l.args = args;
    l.n_args = 1;
    l.arg_array = none;
    l.child_done = tell;
    look_at_first(l);
    Result* result = run_once(l);
    laptop_error& e = result->error;
    if (e.kind && !strcmp(e.kind, "bad launch") && !e.who.pc) e.who.pc = (uint32_t)offset_of(issued_at());
    tell(&l, result);
    result->run->printed.clear();
    run_children(l, *result->run, true);
    keep_touched(*result->run);
    end_launch(*result, false);
    Ended ended = result->run->ended;
    delete result;
    if (ended.code) last_launch_error = ended.code;
    unread = is_refusal(ended.code);
    if (ended.code && !is_refusal(ended.code)) failed = ended.code;
    if (ended.interrupted) raise(SIGINT);
    return ended.code;
}
}  // namespace laptop

extern "C" void laptop_program(int32_t mode, int32_t order, uint64_t seed, uint64_t step_limit,
                               void (*done)(const laptop_launch*, const laptop_result*), double limit, double spent) {
    laptop::program = {mode, order, seed, step_limit, done, {limit, laptop::now() - spent, 0, 0}, nullptr};
    laptop::failed = 0;
}
extern "C" void laptop_before(void (*look)(const laptop_launch*)) { laptop::program.look = look; }
extern "C" void laptop_check(const laptop_launch* launch, double seconds) {
    laptop_launch l = *launch;
    laptop_limit limit = {seconds, 0, 0, 0};
    l.entry = laptop::in_other_build(l.entry);
    l.mode = LAPTOP_SANITIZE;
    l.limit = &limit;
    laptop::take_all_as_written();
    if (l.entry) laptop::tell(&l, laptop::run_once(l));
}
