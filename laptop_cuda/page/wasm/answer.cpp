// A launch as the page describes it, and the runtime's answer as JSON.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "page.h"
#include "runtime.h"

#define EXPORT(name) extern "C" __attribute__((export_name(name)))

using namespace laptop;

static laptop_launch launch;
static std::vector<laptop_storage> storages;
static std::vector<laptop_array> arrays;
static std::vector<void*> values;
static std::vector<int32_t> array_of;
static std::vector<laptop_address> addresses;
static std::string answer;
static uint64_t recorded = 0;    // accesses, at most

EXPORT("alloc") void* page_alloc(size_t bytes) { return calloc(std::max<size_t>(bytes, 1), 1); }

EXPORT("begin") void page_begin(uint32_t source, uint32_t entry, const char* kernel) {
    page_source = laptop_sources[source];
    launch.entry = page_source->entries[entry];
    launch.kernel = kernel;
    launch.mode = LAPTOP_PROFILE | LAPTOP_SANITIZE;
}
EXPORT("size") void page_size(uint32_t axis, uint32_t n) { (axis < 3 ? launch.grid : launch.block)[axis % 3] = n; }
EXPORT("limits") void page_limits(uint32_t shared, uint32_t shared_limit, uint32_t max_threads, uint32_t steps) {
    launch.shared_bytes = shared, launch.shared_limit = shared_limit;
    launch.max_threads = (int32_t)max_threads, launch.step_limit = steps;
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

static void put(const char* name, uint64_t n) { answer += '"' + std::string(name) + "\":" + std::to_string(n) + ','; }
static void put_text(const char* name, const char* text) {
    answer += '"' + std::string(name) + "\":\"";
    for (const char* p = text ? text : ""; *p; ++p) {
        char escaped[8] = {*p};
        if ((unsigned char)*p < 32 || *p == '"' || *p == '\\') snprintf(escaped, sizeof escaped, "\\u%04x", *p);
        answer += escaped;
    }
    answer += "\",";
}
static void close(char with) {
    if (answer.back() == ',') answer.pop_back();
    answer += with, answer += ',';
}

static void put_counts(const laptop_result& r) {
    answer += "\"sites\":[";
    for (uint64_t i = 0; i < r.n_sites; ++i) {
        const laptop_site& s = r.sites[i];
        answer += '{';
        put("place", place_of(s.pc)), put("operation", (uint64_t)s.operation), put("requests", s.requests);
        put("lanes", s.lanes), put("bytes", s.bytes), put("sectors", s.sectors);
        put("wavefronts", s.wavefronts), put("excess", s.excess);
        close('}');
    }
    close(']');
    answer += "\"unique\":[";
    for (uint64_t n : r.unique_sectors) answer += std::to_string(n) + ',';
    close(']');
    put("barriers", r.barriers), put("longest_thread", r.longest_thread);
}

static void put_party(const char* name, const laptop_party& p, uint32_t line) {
    answer += '"' + std::string(name) + "\":{";
    uint32_t place = line ? line : place_of(p.pc);
    put("file", place >> 24), put("line", place & 0xffffff), put("action", (uint64_t)p.action);
    for (auto [of, at] : {std::pair("block", p.block), {"thread", p.thread}}) {
        answer += '"' + std::string(of) + "\":[";
        for (int i = 0; i < 3; ++i) answer += std::to_string(at[i]) + ',';
        close(']');
    }
    close('}');
}

static void put_error(const laptop_result& r, const laptop_error& e) {
    answer += '{';
    put_text("kind", e.kind), put_text("reason", e.reason), put_text("detail", e.detail);
    answer += "\"offset\":" + std::to_string(e.offset) + ',';
    put("size", e.size), put("owner", e.owner), put("has", (uint64_t)e.has_thread);
    if (e.has_thread) put_party("who", e.who, e.file ? e.line : 0);
    if (e.has_other) put_party("other", e.other, 0);
    if (e.memory >= 0) {
        put_text("array", r.memories[e.memory].name);
        put("space", r.memories[e.memory].space), put("itemsize", r.memories[e.memory].itemsize);
        put("array_bytes", r.memories[e.memory].bytes);
    }
    close('}');
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
EXPORT("cluster") void page_cluster(uint32_t x, uint32_t y, uint32_t z, uint32_t limit) {
    launch.cluster[0] = x, launch.cluster[1] = y, launch.cluster[2] = z, launch.cluster_limit = limit;
}

EXPORT("run") const char* page_run(int32_t n_args) {         // arrays behind them are reached through addresses
    launch.args = values.data(), launch.n_args = n_args;
    launch.addresses = addresses.data(), launch.n_addresses = (int32_t)addresses.size();
    launch.arg_array = array_of.data();
    launch.arrays = arrays.data(), launch.n_arrays = (int32_t)arrays.size();
    launch.storages = storages.data(), launch.n_storages = (int32_t)storages.size();
    const laptop_result& r = *laptop_run(&launch);
    answer = "{";
    put_text("printed", r.printed);
    if (r.error.kind) answer += "\"error\":", put_error(r, r.error);
    else put_counts(r);
    answer += "\"notes\":[";
    for (uint64_t i = 0; i < r.n_notes; ++i) put_error(r, r.notes[i]);
    close(']');
    if (recorded) answer += "\"replay\":" + replay_of(r, recorded) + ',';
    answer.back() = '}';
    return answer.c_str();
}
