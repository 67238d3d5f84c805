// What the headers of whole programs ask of the runtime: launches, memory and errors of host code.
#pragma once
#include "engine.h"

extern "C" {
// How launches of host code run and who is told: a whole program sets it once. `limit`: seconds, 0: none.
void laptop_program(int32_t mode, int32_t order, uint64_t seed, uint64_t step_limit,
                    void (*done)(const laptop_launch*, const laptop_result*), double limit, double spent);
// `look` is told of the first launch of each kernel beforehand; it may call laptop_check in a copy of the process.
void laptop_before(void (*look)(const laptop_launch*));
void laptop_check(const laptop_launch*, double seconds);     // by another build that was loaded
// Host code that touches device memory crashes from now on.
void laptop_shut_memory(void);
// A crash of host code writes "signal, offset in the library, address" to a file before the process ends.
void laptop_report_crashes(int file);
}

namespace laptop {
void xorwow_ahead(uint32_t* words, uint64_t times, int log_steps);    // curand's generator, times * 2^log_steps steps
// A launch from host code, on device memory as it is. Returns a cudaError_t.
int launch_from_host(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
                     void (*entry)(void**), void* argument);
bool know_entry(const char* type, void (*entry)(void**));
// What launches ask for: a cluster, and to be cooperative, the next one alone.
struct Asked { unsigned cluster[3], cluster_limit; size_t shared_limit, dynamic; bool cooperative; };
Asked& asked();
// A launch from device code (device_launch.h): its arguments are copied, and it runs when the grid that made it has ended.
struct Child {
    const char* kernel;
    unsigned line, grid[3], block[3];
    size_t shared_bytes;
    bool last;                                // in the parent's tail: after its other children
    void (*entry)(void**);                    // calls the kernel with the arguments in closure[0]
    void* closure;
    size_t bytes;
    void (*copy)(void* to, void* closure);
    void (*end)(void* closure);
};
void check_child_pointer(const char* kernel, const void* p, const void* site);
void launch_from_kernel(const Child&, const void* site);
void await_children(const void* site);
// Device memory. `name` is the text of the argument that receives the pointer.
void* device_malloc(size_t bytes, const char* name = nullptr, unsigned itemsize = 1, bool for_host = false);
const char* device_free(void* p);         // null, or why not
bool host_register(void* p, size_t bytes);        // false: a part of it is registered already
bool host_unregister(void* p);                    // false: it is not the start of what was registered
bool is_registered(const void* p, size_t bytes);
// malloc, new and cudaMalloc in a kernel
void* kernel_malloc(size_t bytes, const void* site, const char* name = "heap memory", unsigned itemsize = 1);
bool is_of_kernel(const void* p);         // memory that kernel_malloc gave
void kernel_free(void* p, const void* site);
enum class Place { HOST, DEVICE, BOTH, OUTSIDE };
Place place_of(const void* p, size_t bytes);
bool is_device_memory(const void* p, size_t bytes);
bool is_whole_program();
// A finding, once for each place. Or, without a `why`, what nothing orders, and the other place.
void error_was_read();                    // of the last launch, if that was refused: then it is no finding
void refused_call(const char* name, const char* why, const void* site, const void* other = nullptr);
bool within_malloc(const void* p, size_t bytes);  // false: it begins in what malloc gave the program, and ends behind it
void leaves_device(const char* call, const void* p, size_t bytes, const void* site);     // a note, if nobody has written it
void copied_out(const void* to, const void* from, size_t bytes, const void* site);       // into memory of the host
// Of a __device__ or __constant__ variable host code on a card has another than kernels have. True. Without an itemsize: one
// that host code may name, too, or whose address cudaGetSymbolAddress gave it.
bool device_variable(const char* name, const void* p, size_t bytes, unsigned itemsize);
size_t allocated(const void* p);          // bytes of the device memory that begins here
// cudaMemcpy, cudaMemset. What malloc gave and nobody set since stays unwritten.
void host_wrote(void* p, size_t bytes, const void* from = nullptr);
constexpr unsigned NEVER_SET = 0xa5c3e96d;      // each word that malloc gives a checked program
const uint8_t* device_written(const void* p);     // for each byte from p on: whether it was written
void device_pointer_type(const void* p, unsigned itemsize);
void open_to_host(const void* p);         // device memory that host code may touch from now on
// While one lives, this thread's host code is the device's: a launch, a copy, an algorithm of the headers.
struct AsDevice {
    explicit AsDevice(bool is_launch = false);
    ~AsDevice();
    bool is_launch;
};
// The order of streams, events and host code (runtime_order.cpp): of checked programs.
enum class Order { MADE, MADE_APART, RECORDED, AWAITS_EVENT, HOST_AWAITS_EVENT, HOST_AWAITS, HOST_AWAITS_ALL, STREAMS_MEET };
void order(Order what, const void* stream = nullptr, const void* event = nullptr);
bool host_has_waited(const void* event);
struct Issued {                           // an operation, in a stream, while it is done; `waits`: host code goes on after it
    Issued(const void* stream, const char* what, const void* site, bool waits = true);
    ~Issued();
    void uses(const void* p, size_t bytes, bool writes);
    struct Work* made = nullptr;
    bool waits;
};
void synchronised();                      // host code goes on, after a wait for the device
int& last_error();                        // of launches from host code and of calls of the CUDA API
int sticky_error();                       // of a kernel that failed: as on a GPU, nothing runs after it
}  // namespace laptop
