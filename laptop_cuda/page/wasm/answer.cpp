// A launch as the page describes it, with the variables of its source, and the runtime's answer as JSON.
#include <stdlib.h>

#include <algorithm>

#include "page.h"
#include "runtime.h"

#define EXPORT(name) extern "C" __attribute__((export_name(name)))

extern "C" __attribute__((weak)) char __start_laptop_kernels, __stop_laptop_kernels;      // where there are variables

using namespace laptop;

const PageSource* laptop::page_source = nullptr;
static laptop_launch launch;
static std::vector<laptop_storage> storages;
static std::vector<laptop_array> arrays;
static std::vector<void*> values;
static std::vector<int32_t> array_of;
static std::vector<laptop_address> addresses;
static std::string answer;
static uint64_t recorded = 0;    // accesses, at most

EXPORT("alloc") void* page_alloc(size_t bytes) { return calloc(std::max<size_t>(bytes, 1), 1); }

// `of`: grid, block, cluster and its limit, shared bytes and their limit, threads and steps at most
EXPORT("begin") void page_begin(uint32_t source, uint32_t entry, const char* kernel, const uint32_t* of) {
    page_source = __start_laptop_sources + source;
    launch.entry = page_source->entries[entry], launch.kernel = kernel, launch.mode = LAPTOP_PROFILE | LAPTOP_SANITIZE;
    for (int i = 0; i < 3; ++i) launch.grid[i] = of[i], launch.block[i] = of[3 + i], launch.cluster[i] = of[6 + i];
    launch.cluster_limit = of[9], launch.shared_bytes = of[10], launch.shared_limit = of[11];
    launch.max_threads = (int32_t)of[12], launch.step_limit = of[13];
}
EXPORT("storage") void page_storage(void* data, uint32_t bytes, uint8_t* initialised) {
    storages.push_back({data, bytes, initialised});
}
EXPORT("value") void page_value(void* value) { values.push_back(value), array_of.push_back(-1); }
EXPORT("array") void page_array(const char* name, const char* dtype, uint32_t itemsize, int32_t storage, uint32_t offset,
                                uint32_t bytes) {
    laptop_array made = {name, dtype, itemsize, storage, offset, bytes, 1, {bytes / itemsize}};
    array_of.push_back((int32_t)arrays.size());
    arrays.push_back(made);
    static void* cells[64];
    values.push_back(&cells[arrays.size() % 64]);
}

// From the table beside the source. Its code has no addresses: numbers of calls stand for them.
void laptop::read_symbols() {
    if (!run->symbols.empty()) return;
    run->code = LAPTOP_PAGE_CODE;
    run->code_high = run->code + page_source->n_lines;
    run->image_low = (uintptr_t)&__start_laptop_kernels;
    run->image_high = (uintptr_t)&__stop_laptop_kernels;
    for (const PageSymbol* s = page_source->symbols; s < page_source->symbols + page_source->n_symbols; ++s) {
        Symbol symbol = {};
        symbol.space = LAPTOP_IN_MODULE, symbol.low = (uintptr_t)s->low, symbol.bytes = s->bytes;
        symbol.name = s->name, symbol.constant = s->constant, symbol.writable = !s->constant;
        run->symbols.push_back(symbol);
    }
    std::sort(run->symbols.begin(), run->symbols.end(), [](const Symbol& a, const Symbol& b) { return a.low < b.low; });
}

static Fields at(uint32_t place) { return {{"file", n(place >> 24)}, {"line", n(place & 0xffffff)}}; }

static std::string site(const laptop_site& s) {
    Fields counts = at(place_of(s.pc));
    for (auto [name, count] : {std::pair("operation", (uint64_t)s.operation), {"requests", s.requests}, {"lanes", s.lanes},
                               {"bytes", s.bytes}, {"sectors", s.sectors}, {"wavefronts", s.wavefronts},
                               {"excess", s.excess}}) counts.push_back({name, n(count)});
    return object(counts);
}

static std::string party(const laptop_party& p, uint32_t line) {
    Fields said = at(line ? line : place_of(p.pc));
    for (auto [name, of] : {std::pair("block", p.block), {"thread", p.thread}}) said.push_back({name, list({n(of[0]), n(of[1]), n(of[2])})});
    said.push_back({"action", n(p.action)});
    return object(said);
}

static std::string error(const laptop_result& r, const laptop_error& e) {
    Fields found = {{"kind", quoted(e.kind)}, {"reason", quoted(e.reason)}, {"detail", quoted(e.detail)},
                    {"offset", n(e.offset)}, {"size", n(e.size)}, {"owner", n(e.owner)}, {"has", n(e.has_thread)}};
    for (auto [name, p, has] : {std::tuple("who", &e.who, e.has_thread), {"other", &e.other, e.has_other}}) {
        if (has) found.push_back({name, party(*p, p == &e.who && e.file ? e.line : 0)});
    }
    if (e.memory < 0) return object(found);
    const laptop_memory& m = r.memories[e.memory];
    for (auto [name, value] : {std::pair("array", quoted(m.name)), {"space", n(m.space)}, {"itemsize", n(m.itemsize)},
                               {"array_bytes", n(m.bytes)}}) found.push_back({name, value});
    return object(found);
}

// For the player: what these blocks do, with so many accesses at most; of a launch that fails, the last ones.
EXPORT("record") void page_record(uint32_t* blocks, int32_t n, uint32_t most, bool fails) {
    launch.mode = LAPTOP_PROFILE | LAPTOP_RECORD | (fails ? LAPTOP_SANITIZE : 0);
    launch.record_blocks = blocks, launch.n_record_blocks = n, launch.watch_array = -1;
    recorded = most, launch.record_events = fails ? 4 * most : most;
}
// A value of so many bytes holds at byte `at` the address of an array's byte `offset`.
EXPORT("address") void page_address(int32_t argument, uint32_t at, uint32_t bytes, int32_t array, uint32_t offset) {
    addresses.push_back({argument, at, bytes, array, offset});
}
EXPORT("run") const char* page_run(int32_t n_args) {         // arrays behind them are reached through addresses
    launch.args = values.data(), launch.n_args = n_args;
    launch.addresses = addresses.data(), launch.n_addresses = (int32_t)addresses.size();
    launch.arg_array = array_of.data();
    launch.arrays = arrays.data(), launch.n_arrays = (int32_t)arrays.size();
    launch.storages = storages.data(), launch.n_storages = (int32_t)storages.size();
    const laptop_result& r = *laptop_run(&launch);
    Fields found = {{"printed", quoted(r.printed)}};
    std::vector<std::string> notes, sites, unique;
    for (uint64_t i = 0; i < r.n_notes; ++i) notes.push_back(error(r, r.notes[i]));
    for (uint64_t i = 0; i < r.n_sites; ++i) sites.push_back(site(r.sites[i]));
    for (uint64_t sectors : r.unique_sectors) unique.push_back(n(sectors));
    for (auto [name, value] : {std::pair("notes", list(notes)), {"sites", list(sites)}, {"unique", list(unique)},
                               {"barriers", n(r.barriers)}, {"longest_thread", n(r.longest_thread)}}) found.push_back({name, value});
    if (r.error.kind) found.push_back({"error", error(r, r.error)});
    if (recorded) found.push_back({"replay", replay_of(r, recorded)});
    return (answer = object(found)).c_str();
}
