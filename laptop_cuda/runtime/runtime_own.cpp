// A thread's own variables: read before they were set, or touched after their function has returned. The compiler fills
// what is declared without a value with a pattern, and says which variables may be read unset (toolchain/unset.py).
#include <string.h>
#include <algorithm>
#include "runtime.h"
#include "runtime_settled.h"

namespace laptop {
static bool is_filled(uintptr_t address, size_t bytes, unsigned char with) {
    auto* p = (const unsigned char*)address;
    return std::all_of(p, p + bytes, [with](unsigned char x) { return x == with; });
}
static bool is_filled4(uintptr_t address) {      // by g++; clang fills with -1 and 0xaaaaaaaa, which programs use, too
    uint32_t word;
    return memcpy(&word, (const void*)address, 4), word == 0xfefefefe;
}
// `pc` is where the hook returns to, which its call has put at the end of what the running functions have of the stack.
static bool is_gone(uintptr_t address, const void* pc) {
#if !defined(__wasm__)
    const void* const* at = (const void* const*)__builtin_frame_address(0);
    for (int i = 0; i < 64 && (uintptr_t)(at + 64) > address; ++i)
        if (at[i] == pc) return address < (uintptr_t)(at + i);
#endif
    return false;
}
void declared(void* p, size_t bytes, const char* name, int line, bool in_parts) {
    Thread* t = current;
    if (!t || !t->log || !run->sanitizing) return;
    unsigned char with = *(unsigned char*)p;
    forget_own(t, [p](const Unset& u) { return u.address == (uintptr_t)p; });
    bool fills = with == 0xfe || with == 0xaa || with == 0xff || (bytes == 1 && !with);      // g++: a bool is false
    Busy busy;
    if (fills && is_filled((uintptr_t)p, in_parts ? 1 : bytes, with)) t->unset.push_back({(uintptr_t)p, bytes, name, line, t->depth, with, in_parts});
}
void has_no_value(const void* site) {
    if (current && run->sanitizing) fail(make_error("uninitialized", "local", site, 0));
}
static void look_at_suspects(Thread* t, uintptr_t address, size_t size, int action, const void* pc) {
    for (const Unset& u : t->unset) {
        bool inside = address >= u.address && address + size <= u.address + u.bytes;     // else a struct is copied whole
        laptop_error e = make_error("uninitialized", "suspect", pc, 0);
        e.detail = u.name, e.offset = u.line;
        bool part = !u.in_parts || (size >= 4 && size < u.bytes);        // a struct without a value may be copied
        if (!action && inside && part && is_filled(address, size, u.with)) fail(e);
    }
    forget_own(t, [&](const Unset& u) { return action && address <= u.address && address + size >= u.address + u.bytes; });
}
// Of the thread's last read of a fill: it may have moved it elsewhere, which is no use of it; and two are not there by chance.
static void settle_nothing(Thread* t, uintptr_t address, size_t size, int action) {
    Nothing n = t->nothing;
    if (!n.to && action == 1 && size == n.size && address != n.address) return void(t->nothing.to = address);
    t->nothing = {};
    if (n.to && is_filled4(n.to)) return;
    uint64_t what = n.address ^ (uint64_t)t->warp->block->linear << 48;
    if (run->used_unset && run->used_unset != what) fail(make_error("uninitialized", "local", n.pc, 0));
    run->used_unset = what;
}
static inline void note_own(Thread* t, uintptr_t address, size_t size, int action, const void* pc) {
    if (!action && (size == 4 || size == 8) && is_filled4(address) && is_filled4(address + size - 4)) t->nothing = {pc, address, size, 0};
    if (size >= 8) moves_struct(t, {address, size, (intptr_t)pc, action});
}
__attribute__((noinline)) static void look_closely(Thread* t, uintptr_t address, size_t size, int action, const void* pc, bool gone) {
    if (pending) resolve_pending();
    if (t->owes) seams.touched_own(address, action, pc);
    if (gone) fail(make_error("out of bounds", "gone", pc, action));
    if (!t->unset.empty()) look_at_suspects(t, address, size, action, pc);
    if (t->nothing.pc) settle_nothing(t, address, size, action);
    note_own(t, address, size, action, pc);
}
void own_scalar(Thread* t, uintptr_t address, size_t size, int action, const void* pc) {
    bool gone = is_gone(address, pc);
    if (gone || pending || t->owes || t->nothing.pc || !t->unset.empty()) return look_closely(t, address, size, action, pc, gone);
    note_own(t, address, size, action, pc);
}
// A struct is copied with what was not set of it: that is not set where it goes, either. A compiler announces either side first.
void moves_struct(Thread* t, const Half& one) {
    Half other = t->half;
    bool pair = other.bytes == one.bytes && other.action != one.action && (uintptr_t)(one.pc - other.pc + 64) < 128;
    t->half = pair ? Half{} : one;
    uintptr_t from = one.action ? other.address : one.address, to = one.action ? one.address : other.address;
    if (!pair) return;
    if (is_own(t, to) && t->nothing.pc && t->nothing.address == from) t->nothing.to = to;        // moved, which is no use of it
    if (is_own(t, to)) return forget_own(t, [&](const Unset& u) { return u.address >= to && u.address < to + one.bytes; });
    Found f = found_quickly(t, to, one.bytes);
    uint8_t* flags = f.region && is_own(t, from) ? flags_of(t, f, to) : nullptr;
    if (flags && one.bytes == t->nothing.size) t->nothing = {};
    for (size_t i = 0; flags && i + 4 <= one.bytes; i += 4)
        if (is_filled4(from + i)) memset(flags + i, COPIED_UNSET, 4);
}
}  // namespace laptop
