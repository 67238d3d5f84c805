// What the parts of the pack's runtime share: a block's copies in flight, and what the other proxy may see.
#pragma once
#include "laptop_asynchronous.h"
#include "runtime_known.h"
#include "runtime_settled.h"
#pragma GCC visibility push(hidden)

namespace laptop {
inline Block& here() { return *current->warp->block; }
inline bool is_checked() { return run->sanitizing && here().watched; }
struct Written { uintptr_t low; uint32_t bytes; uint8_t swizzle, atom; };        // a tile, by a tensor copy
const Written* written_at(uintptr_t address);        // null where a thread has written since
bool is_late();                  // whether what is issued now ends as late as is legal, or at once
void await_the_others(const void* site);         // until nobody else can go on
const void* new_name();          // of what is in flight in this block
void no_longer_in_flight(Block&, const void* name, bool source_only);
std::shared_ptr<std::vector<struct Warpgroup>>& warpgroups_of(Block&);
void must_be_fenced(uintptr_t address, size_t bytes, int action, bool must_be_known, const void* site);
std::string registers_of(Block&, bool at_its_end);       // that are awaited, for a deadlock's text; at the end, were whole warpgroups' set?
enum Reduced { IN_GLOBAL, IN_TENSOR, IN_CLUSTER };
void must_exist(Reduction, Reduced where, const void* site);
void reduce(Reduction, char* to, const char* from, uint32_t bytes);
// Where a byte of a tile goes: pieces, of 16 bytes where not said, change places by bits 7 to 9 of their own address in
// shared memory. Of an odd size: the halves of each 16 bytes, too, in every other line.
inline uint32_t swizzled(uint32_t at, unsigned width, unsigned piece = 16) {
    uint32_t moved = at ^ (piece & 1 ? at >> 4 & 8 : 0), even = piece & ~1u;
    return width ? moved ^ (at >> 7 & (width / even - 1)) * even : at;
}
}  // namespace laptop
#pragma GCC visibility pop
