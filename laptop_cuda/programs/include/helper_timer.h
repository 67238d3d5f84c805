// The stopwatch that CUDA sample programs expect of a header of this name, written anew: milliseconds of this machine.
#pragma once
#include <chrono>

class StopWatchInterface {
    std::chrono::steady_clock::time_point from;
    float total = 0.f;
    int sessions = 0;
    bool running = false;
    float since() const { return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - from).count(); }

public:
    virtual ~StopWatchInterface() {}
    void start() { from = std::chrono::steady_clock::now(), running = true; }
    void stop() { total += since(), running = false, ++sessions; }
    void reset() { total = 0.f, sessions = 0, from = std::chrono::steady_clock::now(); }
    float getTime() const { return running ? total + since() : total; }
    float getAverageTime() const { return sessions ? total / sessions : 0.f; }
};
typedef StopWatchInterface StopWatchLinux;

inline bool sdkCreateTimer(StopWatchInterface** timer) { return *timer = new StopWatchInterface, true; }
inline bool sdkDeleteTimer(StopWatchInterface** timer) {
    delete *timer;
    *timer = nullptr;
    return true;
}
inline bool sdkStartTimer(StopWatchInterface** timer) { return (*timer)->start(), true; }
inline bool sdkStopTimer(StopWatchInterface** timer) { return (*timer)->stop(), true; }
inline bool sdkResetTimer(StopWatchInterface** timer) { return (*timer)->reset(), true; }
inline float sdkGetTimerValue(StopWatchInterface** timer) { return (*timer)->getTime() > 1e-3f ? (*timer)->getTime() : 1e-3f; }
inline float sdkGetAverageTimerValue(StopWatchInterface** timer) {
    return (*timer)->getAverageTime() > 1e-3f ? (*timer)->getAverageTime() : 1e-3f;
}
