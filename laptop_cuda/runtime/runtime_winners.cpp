// Lanes of one warp that store into one word by one instruction: CUDA's guide says that one of them is last, and not which.
// That is a bug where the result depends on it. So a copy of the process goes on in which the first value stays.
#include <string.h>
#if !defined(__wasm__)
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <map>

#include "runtime.h"

namespace laptop {
struct LeftBehind { int timed_out, failed; uint64_t sum; size_t contested; };    // by a launch
struct Contested { uintptr_t at; size_t bytes; uint64_t value; };
constexpr size_t MOST_CONTESTED = 2048;
static struct {
    const Run* of = nullptr;
    bool first_stays = false;
    pid_t copy = 0;
    int answer = -1;
    laptop_error error;
    std::vector<Contested> words;        // of a program's memory, which may be scratch: whoever reads them later is told
} winners;
static std::map<uintptr_t, int> harmless;        // by place: in so many launches
constexpr int OFTEN = 4;
static int& harmless_at(const laptop_error& e) { return harmless[run->code + e.who.pc]; }

static void mix_in(uint64_t& sum, const void* p, size_t bytes) {
    auto mix = [&](uint64_t word) { sum = (sum ^ word) * 0x9e3779b97f4a7c15ull, sum ^= sum >> 29; };
    const char* at = (const char*)p;
    for (uint64_t word; bytes >= 8; at += 8, bytes -= 8) memcpy(&word, at, 8), mix(word);
    while (bytes--) mix((unsigned char)*at++);
}
static LeftBehind left_behind() {
    const char* kind = run->error.kind;
    LeftBehind left = {kind && !strcmp(kind, "timeout"), kind != nullptr, 0, winners.words.size()};
    for (Contested& c : winners.words) memcpy(&c.value, (void*)c.at, c.bytes);
    for (Contested& c : winners.words) memset((void*)c.at, 0, c.bytes);
    for (const Storage& s : run->storages) {
        if (!s.freed) mix_in(left.sum, (const void*)s.data, s.bytes);
    }
    for (const Symbol& s : run->symbols) {
        if (!s.constant) mix_in(left.sum, (const void*)s.low, s.bytes);
    }
    mix_in(left.sum, run->printed.data(), run->printed.size());
    for (Contested& c : winners.words) memcpy((void*)c.at, &c.value, c.bytes);
    return left;
}

#if defined(__wasm__)
static bool part_ways() { return false; }
#else
static bool part_ways() {
    int ends[2];
    if (pipe(ends) != 0) return false;
    winners.copy = fork();
    winners.first_stays = winners.copy == 0;
    winners.answer = ends[winners.first_stays];
    close(ends[!winners.first_stays]);
    if (winners.copy < 0) close(winners.answer);
    return winners.copy >= 0;
}
#endif

static uint8_t* flags_at(uintptr_t address) {
    if (!run->by_code || address - run->arena >= run->arena_bytes) return nullptr;
    const Storage& s = run->storages[run->storage_at[(address - run->arena) / SLOT]];
    return s.freed || !s.region.initialised ? nullptr : s.region.initialised + (address - s.data);
}
static void contest(uintptr_t address, size_t bytes) {
    auto known = [=](const Contested& c) { return c.at < address + bytes && address < c.at + c.bytes; };
    if (bytes > 8 || winners.words.size() == MOST_CONTESTED || !flags_at(address)) return;
    if (std::none_of(winners.words.begin(), winners.words.end(), known)) winners.words.push_back({address, bytes, 0});
}
bool either_stays(const laptop_error& e, void* p, const void* before, size_t bytes) {
    bool repeats = run->poison == 0x5b;          // the launch with another poison
    if (run->recording || (winners.of && winners.of != run && !repeats)) return false;
    Busy busy;
    if (!winners.of && harmless_at(e) >= OFTEN) return remark(e, "either stays"), true;
    if (!winners.of && !repeats && !part_ways()) return false;
    if (!winners.of && !repeats) winners.of = run, winners.error = e;
    if (winners.first_stays) memcpy(p, before, bytes);
    return contest((uintptr_t)p, bytes), true;
}

#if !defined(__wasm__)
static bool hear(void* p, size_t bytes) {
    for (ssize_t n; bytes; p = (char*)p + n, bytes -= (size_t)n)
        if ((n = ::read(winners.answer, p, bytes)) <= 0) return false;
    return true;
}
#endif
void compare_winners() {
    if (winners.of != run) return;
#if !defined(__wasm__)
    LeftBehind here = left_behind(), there = {};
    std::vector<Contested> words(here.contested);
    size_t bytes = here.contested * sizeof(Contested);
    auto tell = [](const void* p, size_t n) { return !n || ::write(winners.answer, p, n) == (ssize_t)n; };
    if (winners.first_stays) _exit(!tell(&here, sizeof here) || !tell(winners.words.data(), bytes));
    bool asked = !here.failed && !was_interrupted();
    bool told = asked && hear(&there, sizeof there) && (here.contested != there.contested || hear(words.data(), bytes));
    if (!told) ::kill(winners.copy, SIGKILL);
    close(winners.answer);
    waitpid(winners.copy, nullptr, 0);
    winners.of = nullptr;
    words.swap(winners.words);
    if (!asked) return;
    bool same = told && !there.failed && here.sum == there.sum && here.contested == there.contested;
    for (size_t i = 0; same && i < words.size(); ++i) same = words[i].at == winners.words[i].at;
    if (!same && !there.timed_out) return winners.words.clear(), (void)(run->error = winners.error);
    for (size_t i = 0; same && i < words.size(); ++i)
        if (words[i].value != winners.words[i].value) memset(flags_at(words[i].at), EITHER, words[i].bytes);
    winners.words.clear();
    ++harmless_at(winners.error);
    remark(winners.error, "either stays");
#endif
}
}  // namespace laptop
