// Who runs next. Blocks run one after the other; in a block, warp by warp; in a warp, each lane until it
// waits for others. The order is fixed (or reversed, or drawn from a seed), so every run is the same run.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include "runtime.h"
#include "runtime_settled.h"

// Written before a thread gets the processor; the kernels' header declares them constant.
// In host code, where thrust's functors may read them, they are those of one thread.
laptop::Coordinates threadIdx, blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
int warpSize = 32;

namespace laptop {

Run* run = nullptr;
__thread Thread* current __attribute__((tls_model("initial-exec"))) = nullptr;      // said again, or a call finds it
static void* scheduler_sp = nullptr;

static uint32_t draw(uint32_t below) {           // xorshift: the same on every machine
    uint64_t& x = run->random;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (uint32_t)((x >> 33) % below);
}

laptop_party party_of(uint32_t block, uint32_t thread, uint32_t pc, int action) {
    laptop_party p = {};
    unfold(p.block, block, run->launch->grid);
    unfold(p.thread, thread, run->launch->block);
    p.pc = pc;
    p.action = action;
    return p;
}
laptop_party party(const Thread* t, uint32_t pc, int action) { return party_of(t->warp->block->linear, t->index, pc, action); }

uint32_t place_in_kernel(const Thread* t, const void* pc) { return code_offset(pc_in_kernel(t, pc)); }

void left_early() { if (current) current->left_early = true; }

void passed_by(const void* site) {
    Thread* t = current;
    if (!t || !t->log) return;
    t->went_on |= t->passed && t->last_pc;
    t->passed = code_offset(site);
    if (t->last_pc) t->earlier_pc = t->last_pc;
    t->last_pc = nullptr;
}
static uint32_t last_place(const Thread& t) { return code_offset(t.last_pc ? t.last_pc : t.earlier_pc); }

static Met* met_at(std::vector<Met>& met, uint32_t place) {
    auto found = std::find_if(met.begin(), met.end(), [&](const Met& m) { return m.place == place; });
    return found == met.end() ? nullptr : &*found;
}

void remember_meeting(Thread* t) {
    uint32_t place = place_in_kernel(t, t->site);
    if (Met* met = met_at(t->met, place)) {
        ++met->times;
        met->loop_end = t->furthest;
        return;
    }
    Busy busy;
    t->met.push_back({place, 1, 0});
}

// A thread that ended before this place is fine, as ended threads count as arrived; one that jumped over it, or left
// the loop around it after fewer turns than those who wait there, and went on is not.
bool jumped_over(const Thread& t, Met there) {
    if (t.state != State::DONE || !there.place) return false;
    uint32_t last = last_place(t);
    for (const Met& met : t.met) {
        if (met.place != there.place) continue;
        return !t.left_early && met.times < there.times && last > std::max(there.loop_end, there.place);
    }
    return last > there.place || (t.passed > there.place && (t.went_on || t.last_pc));
}

laptop_error gone_past(const char* kind, const Thread* waiting, const Thread* gone) {
    uint32_t place = place_in_kernel(waiting, waiting->site);
    bool was_there = std::any_of(gone->met.begin(), gone->met.end(), [&](const Met& m) { return m.place == place; });
    laptop_error e = error_of(kind, was_there ? "fewer turns" : "gone past", waiting, code_offset(waiting->site));
    add_other(e, party(gone, last_place(*gone), 3));
    return e;
}

static int pick(unsigned ready) {
    if (run->launch->order == LAPTOP_REVERSE) return 31 - __builtin_clz(ready);
    if (run->launch->order != LAPTOP_SEEDED) return __builtin_ctz(ready);
    for (uint32_t skip = draw(__builtin_popcount(ready)); skip; --skip) ready &= ready - 1;
    return __builtin_ctz(ready);
}

uint32_t drawn(uint32_t below) { return draw(below); }

static void take_stack(Thread*);

// The current thread stops running. In a plain run the next lane goes on at once, without the scheduler's help.
static void yield_to_next(Thread* t) {
    Warp& w = *t->warp;
    if (!w.ready || run->recording || w.block->barrier_opened) return leave_fiber(&t->sp, scheduler_sp);
    check_interrupt();
    Thread* next = w.lanes[pick(w.ready)];
    if (next == t) return;
    if (!next->sp) take_stack(next);
    threadIdx = next->place;
    current = next;
    change_fiber(&t->sp, next->sp, next->stack);
}

void park(State state) {
    if (pending) resolve_pending();
    if (values_wanted) record_values();
    Thread* t = current;
    t->state = state;
    t->warp->ready &= ~(1u << t->lane);
    if (state == State::FULL) t->warp->full |= 1u << t->lane;
    yield_to_next(t);
}

// The last to arrive wakes the others and then queues up with them, so that lane 0 goes first again.
void give_way() {
    if (pending) resolve_pending();
    if (values_wanted) record_values();
    yield_to_next(current);
}

void wake(Thread* t) {
    t->state = State::READY;
    t->warp->ready |= 1u << t->lane;
}

// Whether two threads wait at the same barrier. Those of inline PTX are known by their numbers.
static bool at_one_barrier(const Thread& t, const Thread& other) {
    if (t.site == other.site && t.number == other.number) return true;
    if ((t.number ^ other.number) & ~ALIGNED) return false;
    bool one_place = !t.number || (t.warp == other.warp && (t.number | other.number) & ALIGNED);
    return !one_place || code_offset(t.site) == code_offset(other.site);
}

// Nobody went past those who wait: nobody of the block, or, where warps come from different places, of the warp.
static void must_not_have_passed(const Block& b, Thread* first) {
    for (const Warp& w : b.warps) {
        Thread* waits = !first->number ? first : w.at_barrier ? w.lanes[__builtin_ctz(w.at_barrier)] : nullptr;
        if (!waits || (waits->number && !(waits->number & ALIGNED))) continue;
        Met there = *met_at(waits->met, place_in_kernel(waits, waits->site));
        for (const Thread* t : w.lanes) {
            if (t && jumped_over(*t, there)) fail(gone_past("barrier divergence", waits, t));
        }
    }
}

static void open_barrier(Block& b) {
    Thread *first = nullptr, *of_warp = nullptr;
    for (Thread& t : b.threads) {
        if (!run->traced) break;
        if (t.state != State::BARRIER) continue;
        if (of_warp && !at_one_barrier(t, *of_warp)) {
            laptop_error e = error_of("barrier divergence", "two barriers", &t, code_offset(t.site));
            add_other(e, party(of_warp, code_offset(of_warp->site), 3));
            fail(e);
        }
        if (!first) first = &t;
        if (!of_warp || t.warp != of_warp->warp) of_warp = &t;
    }
    if (pending) resolve_pending();
    if (run->sanitizing && b.watched && b.alive < run->n_threads) must_not_have_passed(b, first);
    if (run->sanitizing) end_interval(b), start_interval(b);
    ++run->barriers;
    ++b.barriers;
    b.rounds = 0, run->slices = 0;
    if (run->profiling) count_barrier(first->site);
    b.arrived = {(int)b.predicates, (int)b.waiting};
    b.waiting = b.predicates = 0;
    for (Warp& w : b.warps) {
        for (unsigned l = run->traced ? w.at_barrier : 0; l; l &= l - 1) {
            Thread* t = w.lanes[__builtin_ctz(l)];
            t->converged = w.alive;
            t->state = State::READY;
        }
        w.ready |= w.at_barrier;
        w.at_barrier = 0;
    }
    b.barrier_opened = true;
}

Arrived block_barrier(bool predicate, const void* site, uint32_t number) {
    Thread* t = current;
    if (!t) return {predicate, 1};
    Block& b = *t->warp->block;
    t->site = site;
    t->number = number;
    b.predicates += predicate;
    ++b.waiting;
    t->warp->at_barrier |= 1u << t->lane;
    if (run->sanitizing && b.watched) remember_meeting(t);
    uint32_t turn = b.barriers;
    note(b, t->index, LAPTOP_WAIT_BEGINS, (void*)1, turn, site);
    if (b.waiting == b.alive) {
        t->state = State::BARRIER;
        open_barrier(b);
        give_way();
    } else {
        park(State::BARRIER);
    }
    t->state = State::READY;
    if (t->log) log_meeting(t, t->converged, true);
    note(b, t->index, LAPTOP_WAIT_ENDS, (void*)1, turn, site);
    return b.arrived;
}

// As many blocks as the model card has room for at once: 108 multiprocessors of 2048 threads, or of 32 blocks.
static uint64_t most_resident() { return std::min<uint64_t>(3456, 221184 / run->n_threads); }
bool grid_barrier_possible() { return run && run->n_blocks <= most_resident() && !run->launch->no_grid_sync; }
void grid_barrier(const void* site) {
    Thread* t = current;
    if (!t) return;
    t->site = site;
    bool cooperative = !run->launch->no_grid_sync;
    if (!grid_barrier_possible()) fail(make_error("bad launch", cooperative ? "grid too large for grid.sync()" : "not cooperative", site, 3));
    ++t->warp->block->at_grid;
    park(State::GRID);
    if (t->log) log_meeting(t, t->converged, true);
}

static void end_thread(Thread* t) {
    if (pending) resolve_pending();
    if (values_wanted) record_values();
    leave_meeting(t);
    Warp& w = *t->warp;
    Block& b = *w.block;
    t->state = State::DONE;
    b.rounds = 0, run->slices = 0;
    w.alive &= ~(1u << t->lane);
    w.ready &= ~(1u << t->lane);
    --b.alive;
    complete_meetings(w);
    if (b.waiting && b.waiting == b.alive) open_barrier(b);
    if (b.cluster) thread_left(*t);
}

void finish_thread() {
    end_thread(current);
    end_fiber(&current->sp, scheduler_sp);
}

// The stack of a thread that has ended is the next one's: threads that never wait need but one, and no switch.
static bool succeed(Thread* t) {
    Warp& w = *t->warp;
    if (run->traced || !w.ready || w.block->barrier_opened) return false;
    check_interrupt();
    Thread* next = w.lanes[pick(w.ready)];
    if (next->sp) {
        threadIdx = next->place;
        current = next;
        change_fiber(&t->sp, next->sp, next->stack);
        __builtin_unreachable();
    }
    std::swap(t->stack, next->stack);
    next->sp = t->sp;            // any but null: it has started
    threadIdx = next->place;
    current = next;
    return true;
}

static void fiber_body() {
    fiber_entered();
    do {
        run->entry(run->args.data());
        end_thread(current);
    } while (succeed(current));
    end_fiber(&current->sp, scheduler_sp);
}

static void resume(Thread* t) {
    if (!t->sp) take_stack(t);
    threadIdx = t->place;
    current = t;
    enter_fiber(&scheduler_sp, t->sp, t->stack);
    current = nullptr;
}

// A block that has looked at memory for so many rounds lets others run, as on a card they would beside it; one that has
// done so before, sooner. Counts of what waits look at are those of the longer turns.
constexpr uint32_t ROUNDS = 64, SOONER = 4;
static bool soon() { return run->sanitizing && !run->profiling; }
// So many turns in a row in which every block is left where it was after an earlier one, stacks and all: nobody will go on.
static uint64_t patience(size_t blocks) { return std::max<uint64_t>(300, 32 * blocks); }
constexpr size_t MOST_STATES = 1 << 17;

static void run_warp(Warp& w) {
    unsettle_warp();
    for (size_t turns = 0;; ++turns) {
        while (w.ready) {
            if (run->cut) escape();
            resume(w.lanes[pick(w.ready)]);
            check_interrupt();
            if (run->loops) return;
            if (w.block->barrier_opened) {       // the first warp goes first again
                if (w.block->watched) merge(w, true);
                return;
            }
        }
        if (w.block->watched) {
            // A lane that waits for another warp in a loop must not keep that warp from running.
            size_t times = run->locks_taken ? w.block->warps.size() : soon() && w.block->rounds > ROUNDS / 4 ? ROUNDS / SOONER : 1;
            bool others_next = w.full && (turns * times >= ROUNDS || w.block->gives_way);
            merge(w, others_next);
            for (unsigned l = w.full; l; l &= l - 1) {
                Thread* t = w.lanes[__builtin_ctz(l)];
                if (t->log->n_steps == 0 && t->log->n_accesses == 0 && t->steps == 0) {
                    w.full &= ~(1u << t->lane);
                    wake(t);
                }
            }
            if (run->watch.limited && watched_too_long()) unwatch(*w.block);
            if (others_next) return;
        } else if (w.full) {
            check_limit(w.lanes[__builtin_ctz(w.full)]);
            for (unsigned l = w.full; l; l &= l - 1) wake(w.lanes[__builtin_ctz(l)]);
            w.full = 0;
            return;
        }
        if (!w.ready && w.converging) release_converged(w);
        if (!w.ready) return;
    }
}

static void make_block(Block& b) {
    b.threads.resize(run->n_threads);
    b.warps.resize((run->n_threads + run->warp_size - 1) / run->warp_size);
    for (uint32_t i = 0; i < b.warps.size(); ++i) {
        b.warps[i].block = &b;
        b.warps[i].index = i;
        if (run->sanitizing) b.warps[i].known.assign(32 * 32, 0);
    }
    const uint32_t* size = run->launch->block;
    for (uint32_t i = 0; i < run->n_threads; ++i) {
        Thread& t = b.threads[i];
        t.index = i;
        t.place = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
        t.lane = i % run->warp_size;
        t.warp = &b.warps[i / run->warp_size];
        t.warp->lanes[t.lane] = &t;
    }
}

static std::vector<Stack> spare_stacks;          // stacks outlive the launch: making one costs a system call
Block::~Block() {
    for (Thread& t : threads) {
        if (t.stack.low && !gave_stacks) spare_stacks.push_back(t.stack);
    }
    while (spare_stacks.size() > 1024) {
        free_stack(spare_stacks.back());
        spare_stacks.pop_back();
    }
    free_shared(*this);
}

static void take_stack(Thread* t) {
    if (!t->stack.low) {
        Busy busy;
        if (spare_stacks.empty()) {
            t->stack = new_stack();
        } else {
            t->stack = spare_stacks.back();
            spare_stacks.pop_back();
        }
    }
    stack_abandoned(t->stack);
    t->sp = fiber_start(t->stack, fiber_body);
}

static void place_block(Block& b, uint64_t linear) {
    b.linear = (uint32_t)linear;
    unfold(b.index, linear, run->launch->grid);
}

void start_block(Block& b, uint64_t linear, uint64_t watched_with) {
    if (b.threads.empty()) make_block(b);
    place_block(b, linear);
    b.alive = run->n_threads;
    b.waiting = b.at_grid = b.predicates = 0;
    b.steps = b.read_clocks = 0;
    b.rounds = 0;
    b.stays = true;
    b.states.clear();
    b.seen.clear();
    b.gives_way = false;
    b.barriers = 0;
    b.barrier_opened = false;
    b.watched = run->traced && to_be_watched(watched_with);
    b.visited = b.moved = false;
    b.known_to_run = !run->clustered;
    if (!run->clustered) b.cluster = nullptr;
    b.in_flight.clear();
    b.in_flight_elsewhere.clear();
    b.asynchronous.reset();
    std::fill_n(b.arrived_at, 16, 0u);
    start_shared(b);
    if (run->sanitizing) start_interval(b);
    for (Warp& w : b.warps) {
        w.alive = w.ready = w.full = w.converging = w.at_barrier = 0;
        w.merged_interval = 0;
        w.span = 0;
    }
    for (Thread& t : b.threads) {
        t.sp = nullptr;
        if (run->traced) take_stack(&t);     // each has its own: whose a local variable is must stay known
        t.log = b.watched ? &run->logs[t.lane] : nullptr;
        t.depth = 0;
        t.last_pc = t.earlier_pc = nullptr;
        t.passed = t.went_on = t.left_early = t.fenced = 0;
        t.steps = t.last_step = 0;
        t.span = 0;
        t.furthest = run->traced && !b.watched ? UINT32_MAX : 0;
        t.last_error = 0;
        t.spins = 0;
        t.carry = false;
        t.meeting = nullptr;
        t.async_group = 0;
        t.met.clear();
        t.unset.clear();
        t.nothing = {}, t.half = {}, t.awaits = 0;
        t.warp->alive |= 1u << t.lane;
        wake(&t);
    }
}

static void deadlock(Block& b) {
    laptop_error e = error_of("deadlock", "nobody can go on", nullptr, 0);
    int seen = 0;
    std::string where;
    uint32_t last_pc = 0;
    for (Thread& t : b.threads) {
        if (t.state == State::DONE || t.state == State::READY) continue;
        laptop_party p = party(&t, code_offset(t.site), 3);
        if (seen == 0) {
            e.who = p, e.has_thread = 1;
        } else if (seen == 1 && p.pc != e.who.pc) {
            add_other(e, p);
        }
        if (seen == 0 || p.pc != last_pc) seen = std::min(seen + 1, 2);
        last_pc = p.pc;
        if (t.state == State::EXCHANGE && where.empty()) {
            char text[160];
            unsigned missing = t.meeting->mask & t.warp->alive & ~t.meeting->data.present;
            snprintf(text, sizeof text, "mask 0x%08x, missing lanes 0x%08x", t.meeting->mask, missing);
            where = text;
        }
    }
    if (where.empty() && seams.awaited) where = seams.awaited(b.cluster ? b.cluster->blocks : std::vector<Block*>{&b});
    if (where.empty() && b.cluster && b.cluster->arrived) where = "cluster " + std::to_string(b.cluster->arrived);
    run->detail = where;
    e.detail = run->detail.empty() ? nullptr : run->detail.c_str();
    fail(e);
}

// Not where it is recorded, which follows one block after the other, nor one that waits for what it has launched.
static bool can_wait(const Block& b) { return !run->recording && b.alive && !run->loops; }

static void nobody_changes(const Block& b, bool only_the_hosts = false) {
    auto t = std::find_if(b.threads.begin(), b.threads.end(), [](const Thread& t) { return t.state != State::DONE; });
    for (const Thread& other : b.threads) {      // rather one that looks than one that waits for it
        if (other.state == State::FULL || other.state == State::READY) t = b.threads.begin() + other.index;
    }
    bool host = t->awaits && seams.host_sees && seams.host_sees(t->awaits);
    if (host || !only_the_hosts) fail(error_of(host ? "not supported" : "deadlock", host ? "host" : "nobody changes", &*t, t->last_place));
}

// Who has taken a lock, perhaps, lets others run: if they take one that it takes next, and then wait for its own, they do here.
void took_lock() {
    if (!current || !current->log || !run->sanitizing || run->recording || ++run->locks_taken > 64) return;
    current->warp->block->gives_way = true;
    park(State::FULL);
}

// Runs the block until it ends (true) or all its threads wait for the other blocks (false).
static bool run_block(Block& b) {
    blockIdx = {b.index[0], b.index[1], b.index[2]};
    settle_in(b);
    begin_watching(b);
    std::vector<uint32_t> order(b.warps.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    if (run->launch->order == LAPTOP_REVERSE) std::reverse(order.begin(), order.end());
    while (b.alive && !run->loops) {
        if (run->launch->order == LAPTOP_SEEDED) {
            for (uint32_t i = (uint32_t)order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
        }
        bool progress = false;
        for (uint32_t i : order) {
            Warp& w = b.warps[i];
            if (!w.ready && !w.converging && !w.full) continue;
            progress = b.moved = true;
            run_warp(w);
            if (b.barrier_opened || run->loops) break;
        }
        b.barrier_opened = false;
        if (b.rounds >= ROUNDS && seams.deliver && seams.deliver(b, false)) b.rounds = 0;
        if ((b.rounds >= ROUNDS || b.gives_way) && can_wait(b)) {
            b.gives_way = false;
            end_watching(b, false);
            return false;
        }
        if (!progress) {
            if (b.at_grid && b.at_grid == b.alive) {
                end_watching(b, false);
                return false;
            }
            if (run->clustered) {                // the others of its cluster first
                end_watching(b, false);
                return false;
            }
            if (seams.deliver && seams.deliver(b, false)) continue;
            if (!seams.run_awaited || !seams.run_awaited(b)) deadlock(b);
        }
    }
    if (seams.deliver) seams.deliver(b, true);
    if (run->sanitizing) end_interval(b);
    if (run->clustered) block_left(b);
    end_watching(b, !run->loops);        // else the launch starts again
    return true;
}

static std::unordered_set<void (*)(void**)> with_loops;   // of those that are always the same kernel

// The first thread that asks ends here: the launch starts again.
void start_again() {
    run->loops = true;
    end_fiber(&current->sp, scheduler_sp);
}

bool loops_over_threads(bool blocks_apart) {
    if (!current || !run->may_loop) return false;
    if (!run->shared_out) run->blocks_apart = blocks_apart;
    if (run->loops) return true;
    start_again();
}

// Where blocks are apart, a kernel has its own blockIdx: that of the others' is one for all cores.
const uint32_t* this_block() { return current->warp->block->index; }

void run_whole(Block& b, uint64_t linear) {
    place_block(b, linear);
    start_shared(b);
    if (!run->shared_out) blockIdx = {b.index[0], b.index[1], b.index[2]};
    run->entry(run->args.data());
}

static void whole_body() {
    fiber_entered();
    run_whole_blocks(*run->blocks.back());
    end_fiber(&current->sp, scheduler_sp);
}

// All blocks (or this core's) on one fiber, with the order of the fibers: thread after thread, from barrier to barrier.
static void run_wholes() {
    static Stack stack = new_stack(BLOCK_STACK_BYTES);
    if (!run->by_code) with_loops.insert(run->entry);
    run->blocks.clear();
    run->blocks.emplace_back(new Block);
    Block& b = *run->blocks.back();
    b.threads.resize(1);
    b.warps.resize(1);
    b.warps[0].block = &b;
    b.warps[0].alive = 1;
    Thread whole;
    whole.warp = &b.warps[0];
    whole.stack = stack;
    whole.state = State::READY;
    stack_abandoned(stack);
    whole.sp = fiber_start(stack, whole_body);
    resume(&whole);
}

// A stack for each of their threads would be too many: what its threads have on their stacks is kept elsewhere, and the
// next block takes the stacks. Each thread goes on at the addresses where it was.
static void put_away(Block& b) {
    Busy busy;
    for (Thread& t : b.threads) {
        if (t.stack.low && !b.gave_stacks) spare_stacks.push_back(t.stack);
        if (t.state == State::DONE || !t.sp) continue;
        stack_abandoned(t.stack);
        size_t bytes = fiber_bytes(t.stack, t.sp);
        t.kept.assign(t.stack.top - bytes, t.stack.top);
    }
    b.gave_stacks = true;
}

// Whether its threads are where they were after an earlier turn, and what they have looked at last is as it was.
static bool is_known(Block& b) {
    uint64_t sum = 0;
    for (const Thread& t : b.threads) {
        sum = sum * 31 + std::hash<std::string_view>()({t.kept.data(), t.kept.size()});
        if (t.awaits) sum = sum * 31 + *(const uint64_t*)(t.awaits & ~7ull);
    }
    Busy busy;
    return b.states.size() >= MOST_STATES || !b.states.insert(sum).second;
}

static void take_up(Block& b) {
    for (Thread& t : b.threads) {
        if (t.kept.empty()) continue;
        stack_abandoned(t.stack);                // by whoever had it meanwhile
        memcpy(t.stack.top - t.kept.size(), t.kept.data(), t.kept.size());
        t.kept.clear();
    }
}

static void open_grid_barrier(const std::vector<Block*>& blocks) {
    // Blocks that ended count as arrived, as exited threads do at a block barrier.
    ++run->grid_epoch;
    run->slices = 0;
    for (Block* b : blocks) {
        b->at_grid = 0;
        ++b->barriers;
        if (run->sanitizing) end_interval(*b), start_interval(*b);
        for (Thread& t : b->threads) {
            if (t.state == State::GRID) t.converged = t.warp->alive, wake(&t);
        }
    }
}

static bool waits_at_grid(const Block* b) { return b->at_grid && b->at_grid == b->alive; }

// Each block that waits for others has another look. False: none of them could go on.
static bool go_round(std::vector<Block*>& suspended) {
    bool moved = false;
    for (Block* b : suspended) {
        if (waits_at_grid(b)) continue;
        uint64_t most = patience(suspended.size());
        if (++run->slices > most / 8 && !run->clustered) nobody_changes(*b, run->slices <= most);
        b->rounds = soon() && b->stays ? ROUNDS - SOONER : 0, b->moved = false;
        run->clustered ? take_over_shared(*b) : take_up(*b);
        bool ended = run_block(*b);
        if (run->clustered) put_shared_away(*b);
        else if (!ended) put_away(*b), b->stays = is_known(*b);
        if (!run->clustered && (ended || !b->stays)) run->slices = 0;
        moved |= ended || b->moved;
    }
    suspended.erase(std::remove_if(suspended.begin(), suspended.end(), [](Block* b) { return !b->alive; }), suspended.end());
    return moved;
}

// The next cluster starts when this one has ended, or waits for others in a loop or at the grid's barrier.
static void run_clusters() {
    uint64_t next = 0, count = run->n_blocks / run->cluster_size;
    std::vector<Block*> live;
    while (next < count || !live.empty()) {
        bool moved = go_round(live), stuck = run->slices > patience(live.size()), landed = false;
        bool spins = std::any_of(live.begin(), live.end(), [](const Block* b) { return b->rounds >= ROUNDS; });
        for (Block* b : live) landed |= (!moved || spins) && seams.deliver && seams.deliver(*b, false);
        if (landed) run->slices = 0;
        if (landed || (moved && !stuck)) continue;
        bool waits = live.empty() || stuck || std::any_of(live.begin(), live.end(), waits_at_grid);
        if (waits && next < count && live.size() + run->cluster_size <= most_resident()) {
            if (live.empty()) run->blocks.clear(), run->clusters.clear();
            start_cluster(run->launch->order == LAPTOP_REVERSE ? count - 1 - next : next, live);
            ++next, run->slices = 0;
        } else if (!moved && std::all_of(live.begin(), live.end(), waits_at_grid)) {
            open_grid_barrier(live);
        } else {
            moved ? nobody_changes(*live[0]) : deadlock(*live[0]);
        }
    }
}

void run_grid() {
    const laptop_launch& l = *run->launch;
    blockDim = {l.block[0], l.block[1], l.block[2]};
    gridDim = {l.grid[0], l.grid[1], l.grid[2]};
    run->may_loop = !run->traced && l.order == LAPTOP_FORWARD && !getenv("LAPTOP_CUDA_FIBERS");
    if (l.cluster[0]) ask_for_cluster(l.cluster);
    if (run->clustered) return run_clusters();
    run->loops = run->may_loop && with_loops.count(run->entry);
    if (run->loops) return run_wholes();
    std::vector<Block*> suspended;
    run->blocks.emplace_back(new Block);
    for (uint64_t i = 0; i < run->n_blocks; ++i) {
        uint64_t linear = l.order == LAPTOP_REVERSE ? run->n_blocks - 1 - i : i;
        if (run->recording && suspended.empty() && nothing_left_to_record(linear)) return;
        while (suspended.size() >= most_resident()) go_round(suspended);
        Block& b = *run->blocks.back();
        start_block(b, linear, linear);
        bool ended = run_block(b);
        if (run->loops && run->clustered) {
            run->loops = false;
            for (int i = 0; run->traced && i < 32; ++i) run->logs[i].n_steps = run->logs[i].n_accesses = 0;
            return run_clusters();
        }
        if (run->loops) return run_wholes();
        if (!ended) {
            put_away(b);
            suspended.push_back(&b);
            run->blocks.emplace_back(new Block);
        }
    }
    while (!suspended.empty()) {
        if (std::all_of(suspended.begin(), suspended.end(), waits_at_grid)) open_grid_barrier(suspended);
        go_round(suspended);
    }
}

// What a thread reads moves on with each reading, as a plain run counts nothing else: a loop may wait for it.
long long clock() {
    constexpr uint64_t CLOCKS_OF_A_READING = 32;
    static thread_local uint64_t of_loops_over_threads = 0;
    if (!current) return (long long)(of_loops_over_threads += CLOCKS_OF_A_READING);
    Block& b = *current->warp->block;
    return (long long)((b.read_clocks += CLOCKS_OF_A_READING) + b.steps + current->clock);
}
}  // namespace laptop
