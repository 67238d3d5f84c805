// One launch, from its description to its result.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "runtime.h"

namespace laptop {

Seams seams = {};
uintptr_t heap_base = 0;
size_t heap_used = 0;
uintptr_t variables_low = 0, variables_high = 0, unwritten_low = 0, unwritten_high = 0;
std::recursive_mutex one_at_a_time;

laptop_error error_of(const char* kind, const char* reason, const Thread* t, uint32_t place, int action) {
    laptop_error e = {};
    e.kind = kind;
    e.reason = reason;
    e.memory = -1;
    if (t) e.who = party(t, place, action), e.has_thread = 1;
    return e;
}

void add_other(laptop_error& e, const laptop_party& other) { e.other = other, e.has_other = 1; }

laptop_error make_error(const char* kind, const char* reason, const void* pc, int action) {
    laptop_error e = error_of(kind, reason, nullptr, 0);
    if (current) {
        e.who = party(current, code_offset(pc), action);
        e.has_thread = current->stack.bytes == STACK_BYTES ? 1 : LAPTOP_BLOCK_ONLY;    // one stack for all its threads
    }
    return e;
}

void fail(const laptop_error& e) {
    bool decided = !strcmp(e.kind, "race") || !strcmp(e.kind, "uninitialized") || !strcmp(e.kind, "timeout");
    bool running = current && current->state != State::DONE;
    if (running && run->sanitizing && !decided && uninitialised_read_of(current)) {
        // It may follow from the uninitialised read, and that in turn may be half of a race: let the others
        // go on to the end of the interval, where that is decided.
        pending = false;
        finish_thread();
    }
    laptop_error& error = launch_error();
    error = e;
    if (e.detail && e.detail != run->detail.c_str()) {
        Busy busy;
        run->detail = e.detail;
    }
    if (e.detail) error.detail = run->detail.c_str();
    pending = false;
    record_end();
    escape();
}

void assert_failed(const char* expression, const char* file, int line) {
    if (!current) {
        fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expression);
        abort();
    }
    laptop_error e = make_error("assertion", "assert", nullptr, 0);
    e.file = file;
    e.line = (uint32_t)line;
    e.detail = expression;
    fail(e);
}

void trap(const char* what, const void* site) {
    if (!current) abort();
    laptop_error e = make_error("assertion", "trap", site, 0);
    e.detail = what;
    fail(e);
}

void not_supported(const char* what, const void* site) {
    if (!current) {
        fprintf(stderr, "%s is not supported here\n", what);
        abort();
    }
    laptop_error e = make_error("not supported", "", site, 0);
    e.detail = what;
    fail(e);
}

// Whether a format writes to memory, as %n does: no GPU has it, and no hook would see it.
static bool format_writes(const char* format) {
    for (const char* p = format; (p = strchr(p, '%')); ++p) {
        p += 1 + strspn(p + 1, "0123456789.*+- #'$hlLqjzt");
        if (*p == 'n') return true;
        if (!*p) return false;
    }
    return false;
}

int print(const char* format, ...) {
    if (current && format_writes(format)) not_supported("printf with %n", LAPTOP_SITE);
    va_list values;
    va_start(values, format);
    int n;
    if (!current) {
        n = vprintf(format, values);
    } else {
        Busy busy;
        char text[4096];
        n = vsnprintf(text, sizeof text, format, values);
        constexpr size_t LIMIT = 1 << 20;        // what a GPU's buffer holds
        if (n > 0 && run->printed.size() < LIMIT) {
            run->printed.append(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
            if (run->printed.size() >= LIMIT) run->printed += "\n(the kernel printed more than 1 MiB: the rest is dropped)\n";
        }
    }
    va_end(values);
    return n;
}

void host_prints(const char* format, const char* const* strings, size_t n, const void* site) {
    if (seams.host_prints) seams.host_prints(format, strings, n, site);
}

laptop_error bad_launch(const char* reason, int64_t value) {
    laptop_error e = error_of("bad launch", reason, nullptr, 0);
    e.offset = value;
    return e;
}

laptop_error refused(const laptop_launch& l) {
    static const uint64_t GRID[3] = {2147483647, 65535, 65535}, BLOCK[3] = {1024, 1024, 64};
    for (int i = 0; i < 3; ++i) {
        if (l.grid[i] == 0) return bad_launch("empty grid", i);
        if (l.block[i] == 0) return bad_launch("empty block", i);
        if (l.grid[i] > GRID[i]) return bad_launch("grid too large", l.grid[i]);
    }
    uint64_t threads = (uint64_t)l.block[0] * l.block[1] * l.block[2];
    if (threads > 1024) return bad_launch("too many threads", (int64_t)threads);
    for (int i = 0; i < 3; ++i) {
        if (l.block[i] > BLOCK[i]) return bad_launch("block too large", l.block[i]);
    }
    if (l.max_threads && threads > (uint64_t)l.max_threads) return bad_launch("launch bounds", (int64_t)threads);
    uint64_t limit = l.shared_limit ? l.shared_limit : 48 << 10;
    if (l.shared_bytes > limit) return bad_launch("too much shared memory", (int64_t)l.shared_bytes);
    return {};
}

static int level = 0;            // 1, and one more for each launch that waits for its children

static void execute(const laptop_launch& l) {
    run->launch = &l;
    run->profiling = l.mode & LAPTOP_PROFILE;
    run->sanitizing = l.mode & LAPTOP_SANITIZE;
    run->traced = l.mode != LAPTOP_PLAIN;
    run->recording = l.mode & LAPTOP_RECORD && run->poison == 0xff;      // not where a launch is run again
    run->in_place = l.in_place;
    if (l.banks) run->banks = l.banks;
    if (l.bank_bytes) run->bank_bytes = l.bank_bytes;
    if (l.sector_bytes) run->sector_bytes = l.sector_bytes;
    if (l.warp_size) run->warp_size = l.warp_size;
    warpSize = (int)run->warp_size;
    run->entry = l.entry;
    run->n_threads = l.block[0] * l.block[1] * l.block[2];
    run->n_blocks = (uint64_t)l.grid[0] * l.grid[1] * l.grid[2];
    run->random = l.seed * 2654435769u + 0x9e3779b97f4a7c15ull;
    read_symbols();
    map_arrays();
    if (run->traced) {
        // Kept, for each launch that waits for children: clearing 1.6 MB would take longer than a small launch.
        static std::vector<std::unique_ptr<Log[]>> of_level;
        while (of_level.size() < (size_t)level) of_level.emplace_back(new Log[32]);
        Log* logs = of_level[level - 1].get();
        for (int i = 0; i < 32; ++i) logs[i].n_steps = logs[i].n_accesses = logs[i].at_step = logs[i].at_access = 0;
        run->logs = logs;
        start_recording();
    }
    if (run->traced) start_watching();
    if (run->sanitizing) start_sanitizing();
    run_grid();
    if (run->sanitizing) end_sanitizing();
}

typedef std::vector<std::string> Bytes;
static Bytes variables() {
    Bytes found;
    for (const Symbol& s : run->symbols) found.push_back(s.constant ? "" : std::string((const char*)s.low, s.bytes));
    return found;
}
static void set_variables(const Bytes& values) {
    for (size_t i = 0; i < values.size(); ++i) {         // only what differs: relocated constants look writable
        void* to = (void*)run->symbols[i].low;
        if (memcmp(to, values[i].data(), values[i].size()) != 0) memcpy(to, values[i].data(), values[i].size());
    }
}

// Runs it again with another poison: if arrays or the module's variables differ, the undefined value reached them.
static bool depends_on_undefined(const laptop_launch& l, const Bytes& before) {
    Run* first = run;
    Bytes after = variables();
    set_variables(before);
    first->again.reset(new Run);
    run = first->again.get();
    run->poison = 0x5b;
    execute(l);
    bool differs = variables() != after;
    pointers_of_host(*first), pointers_of_host(*run);
    for (size_t i = 0; i < first->storages.size(); ++i) {
        const Storage &a = first->storages[i], &b = run->storages[i];
        differs |= memcmp((void*)a.data, (void*)b.data, a.bytes) != 0;
    }
    set_variables(after);
    unmap_arrays();
    run = first;
    first->again.reset();
    return differs;
}

// Whether the NaN that stands for an undefined value is where this launch has written: arithmetic passes it on.
static bool holds_undefined(const Region& r) {
    for (uintptr_t at = r.low; r.cells && at + 4 <= r.low + r.bytes; at += 4) {
        const Cell& c = r.cells[(at - r.low) / r.grain];
        if ((c.mark[Cell::WRITER] || c.mark[Cell::UPDATER]) && !memcmp((void*)at, &UNDEFINED_FLOAT, 4)) return true;
    }
    return false;
}

static void perform(const laptop_launch& l) {
    laptop_error wrong = refused(l);
    if (wrong.kind) fail(wrong);
    Bytes before;
    if (run->sanitizing && !run->by_code) read_symbols(), before = variables();
    execute(l);
    if (!run->undefined.kind) return;
    bool repeats = !run->by_code;                // else it worked on the program's own memory
    auto holds = [](const Storage& s) { return holds_undefined(s.region); };
    if (repeats ? depends_on_undefined(l, before) : std::any_of(run->storages.begin(), run->storages.end(), holds))
        fail(run->undefined);
    Busy busy;
    run->undefined.reason = repeats ? "unused shuffle" : "some shuffle";
    run->notes.push_back(run->undefined);
}

static void collect(Result& result) {
    Run& r = *result.run;
    static_cast<laptop_result&>(result) = {};
    result.error = r.error;
    result.interrupted = was_interrupted() && !r.error.kind;
    result.printed = r.printed.c_str();
    result.memories = r.memories.data();
    result.n_memories = r.memories.size();
    result.n_unique = 0;
    for (Site& s : r.sites) result.n_unique = std::max<uint64_t>(result.n_unique, s.unique.size());
    for (Site& s : r.sites) {
        if (!s.unique.empty()) s.counts.unique = s.unique.data();
        result.site_list.push_back(s.counts);
    }
    result.sites = result.site_list.data();
    result.n_sites = result.site_list.size();
    for (int i = 0; i < LAPTOP_CLASSES; ++i) result.unique_sectors[i] = r.unique_count[i];
    result.atomic_addresses[LAPTOP_GLOBAL_ATOMIC] = r.atomic_word_count;
    result.barriers = r.barriers;
    result.steps = r.steps;
    result.divergent_steps = r.divergent_steps;
    result.longest_thread = r.longest_thread;
    result.longest_warp = r.longest_warp;
    result.stack_bytes = r.stack_bytes;
    result.requests = r.requests.data();
    result.n_requests = r.requests.size();
    result.shared_bytes = r.shared_bytes;
    result.executed = r.executed.data();
    result.n_executed = r.executed.size();
    result.notes = r.notes.data();
    result.n_notes = r.notes.size();
    result.recorded_steps = r.recorded_steps.data();
    result.n_recorded_steps = r.recorded_steps.size();
    result.recorded_events = r.recorded_events.data();
    result.n_recorded_events = r.recorded_events.size();
    result.moments = r.moments.data();
    result.n_moments = r.moments.size();
    result.cut = r.cut || r.older_gone;
    result.checked_blocks = r.watch.limited ? r.watch.whole : r.n_blocks;
    memcpy(result.checked, r.watch.shown, sizeof result.checked);
}

static int code_of(const laptop_error& e) {
    if (!e.kind) return 0;
    if (strcmp(e.kind, "bad launch") != 0) return strcmp(e.kind, "assertion") ? 719 : 710;
    if (!strcmp(e.reason, "not cooperative")) return 719;
    return strcmp(e.reason, "too much shared memory") ? INVALID_CONFIGURATION : INVALID_VALUE;
}

static void attempt_with_signals(const laptop_launch& l) {
    if (++level == 1) {
        Signals signals;
        attempt(perform, l);
    } else {
        attempt(perform, l);
    }
    --level;
}

// Its arrays stay mapped until end_launch, for its children.
Result* run_once(const laptop_launch& l, Run* lender) {
    Result* result = new Result;
    result->run.reset(new Run);
    Run* outer = run;
    run = result->run.get();
    run->launch = &l;
    run->sanitizing = l.mode & LAPTOP_SANITIZE;
    run->traced = l.mode != LAPTOP_PLAIN;
    run->in_place = l.in_place;
    run->by_code = l.in_place || lender;
    run->lender = lender;
    if (lender) run->printed.swap(lender->printed);      // which nobody has been told yet
    attempt_with_signals(l);
    if (run != result->run.get()) {              // the second run failed where the first did not: it depends, then
        unmap_arrays();
        run = result->run.get();
        if (!was_interrupted()) run->error = run->undefined;
        run->again.reset();
    }
    compare_winners();
    run->blocks.clear();
    collect(*result);
    run->ended.failed |= run->error.kind || result->interrupted;
    run->ended.interrupted |= result->interrupted;
    if (!run->ended.code) run->ended.code = code_of(run->error);
    run = outer;
    return result;
}

void end_launch(Result& result, bool copies_back) {
    Run* outer = run;
    run = result.run.get();
    if (copies_back) copy_back();
    unmap_arrays();
    run = outer;
}

static Result* run_family(const laptop_launch& l) {
    std::lock_guard<std::recursive_mutex> lock(one_at_a_time);
    Result* result = run_once(l);
    Run& of = *result->run;
    if (!of.recording && seams.run_children) seams.run_children(l, of);
    end_launch(*result, !of.ended.failed && !of.recording);
    result->interrupted = of.ended.interrupted;
    result->printed = of.printed.c_str();
    return result;
}
}  // namespace laptop

extern "C" laptop_result* laptop_run(const laptop_launch* launch) { return laptop::run_family(*launch); }
extern "C" void laptop_free(laptop_result* result) { delete static_cast<laptop::Result*>(result); }
