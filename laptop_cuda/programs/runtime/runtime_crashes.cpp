// Crashes of host code, in a process of its own: what is known of one is written to a file before the process ends.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <set>

#include "programs.h"
#include "runtime_signals.h"

namespace laptop {

static int report_file = -1;

// Whether the access that crashed was a write, as an action of laptop_party; some processors do not say.
static int action_of(void* context) {
#if defined(__x86_64__) && !defined(__APPLE__)
    return ((ucontext_t*)context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1;
#else
    return TOUCHES;
#endif
}

// Of an access to device memory, what it is, and who called for it: once the crash itself is told, as the walk may crash.
static void tell_of_device_memory(uintptr_t address, int action) {
    laptop_error e = {};
    laptop_memory m;
    if (!is_whole_program() || !closed_to_host(address, 1, e, m)) return;
    std::string name = m.name, from = callers();
    for (char& c : name) c = c == '"' || c == '\\' ? '\'' : c;
    char text[1200];
    int n = snprintf(text, sizeof text, "{\"host_access\": [\"%s\", \"%.500s\", \"%s\", %u, %llu, %lld, %d]}\n", e.reason,
                     name.c_str(), from.c_str(), m.itemsize, (unsigned long long)m.bytes, (long long)e.offset, action);
    if (n > 0 && write(report_file, text, (size_t)n) < 0) _exit(1);
}

static void on_host_crash(int signal, siginfo_t* info, void* context) {
    Dl_info where = {};
    uintptr_t pc = program_counter(context);
    dladdr((void*)pc, &where);
    char text[160];
    int n = snprintf(text, sizeof text, "{\"crash\": %d, \"offset\": %llu, \"address\": %llu, \"in\": \"%.60s\"}\n", signal,
                     (unsigned long long)(pc - (uintptr_t)where.dli_fbase), (unsigned long long)(uintptr_t)info->si_addr,
                     where.dli_sname ? where.dli_sname : "");
    if (n > 0 && write(report_file, text, (size_t)n) < 0) _exit(1);
    ::signal(signal, SIG_DFL);
    if (signal == SIGSEGV || signal == SIGBUS) tell_of_device_memory((uintptr_t)info->si_addr, action_of(context));
    raise(signal);
}

uint64_t offset_of(const void* site) {
    Dl_info where = {};
    return dladdr(site, &where) ? (uint64_t)((uintptr_t)site - (uintptr_t)where.dli_fbase) : 0;
}
void tell_parent(const char* row) {
    if (report_file >= 0 && write(report_file, row, strlen(row)) < 0) report_file = -1;      // whoever listened has gone
}
void refused_call(const char* name, const char* why, const void* site, const void* other) {
    static std::set<const void*> told;
    if (report_file < 0 || !told.insert(site).second) return;
    char text[700];
    int n = snprintf(text, sizeof text, "{\"refused\": \"%.500s\", \"why\": \"%s\", \"offsets\": [%llu, %llu]}\n", name, why,
                     (unsigned long long)offset_of(site), (unsigned long long)offset_of(other));
    if (n < (int)sizeof text) tell_parent(text);
}
}  // namespace laptop

extern "C" void laptop_report_crashes(int file) {
    laptop::report_file = file;
    laptop::use_handler_stack(nullptr);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
        struct sigaction action = {};
        sigemptyset(&action.sa_mask);
        action.sa_flags = SA_ONSTACK | SA_SIGINFO;
        action.sa_sigaction = laptop::on_host_crash;
        sigaction(signal, &action, nullptr);
    }
}
