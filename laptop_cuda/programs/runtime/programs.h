// What the parts of the runtime that serve whole programs know of each other.
//
//   runtime_program.cpp    launches of host code
//   runtime_heap.cpp       device memory
//   runtime_host.cpp       host code that touches it
//   runtime_unwritten.cpp  host code that uses what was copied from it and never written
//   runtime_crashes.cpp    crashes of host code
//   runtime_order.cpp      the order of streams, events and host code
//   runtime_children.cpp   launches that kernels make
//   runtime_random.cpp     jumps of a random generator
#pragma once
#include "laptop_host.h"
#include "runtime.h"

#pragma GCC visibility push(hidden)
namespace laptop {
struct Queued {                  // a child, with a copy of its arguments
    Child what;
    laptop_parent parent;
    Queued(const Child&, const laptop_parent&);
    Queued(Queued&&);
    Queued& operator=(Queued&&);
    ~Queued();
};

void run_children(const laptop_launch&, Run&, bool with_tail);
void refresh_heap();             // others have asked for memory, or freed some
void take_all_as_written();
size_t device_bytes();
std::string element_at(uintptr_t address);
bool is_sanitized();
void used_unwritten(uintptr_t address, size_t size, bool writes, const void* pc);
const void* issued_at();          // the place of the call that does now what it was asked for; of checked programs
uint64_t offset_of(const void* site);    // in its library
void keep_touched(Run&);         // what a launch did that is issued
void used_by_host(uintptr_t address, size_t size, bool writes, const void* pc);
// Whether host code may not touch this; says then where it is, and in what.
bool closed_to_host(uintptr_t address, size_t size, laptop_error&, laptop_memory&);
constexpr int FREES = 4, TOUCHES = 5;    // actions of host code: free() of it, and one that is not known
void touched_by_host(uintptr_t address, size_t size, int action, const void* pc);
enum class Event { LAUNCHED, COPIED, SYNCHRONISED };
void host_waits();               // plain programs: device memory is opened,
void host_goes_on(Event);        // and perhaps shut
extern bool shuts_memory;        // of a plain program
extern const void* program_base; // where the library of a program that asks for memory is loaded
std::string callers();           // offsets in the program's library of the calls that led here
void tell_parent(const char* row);       // of the report, as JSON
void tell(const laptop_launch*, const laptop_result*);   // whoever wants to know of launches
}  // namespace laptop
#pragma GCC visibility pop
