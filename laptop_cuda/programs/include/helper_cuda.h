// The names that CUDA sample programs expect of a header of this name, written anew.
#pragma once
#include <cstdio>
#include <cstdlib>

#include "host_launch.h"
#include "helper_string.h"

#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif

namespace laptop {
inline void check_call(int status, const char* call, const char* file, int line) {
    if (!status) return;
    ::fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, cudaGetErrorString((cudaError_t)status), status);
    ::exit(EXIT_FAILURE);
}
inline void check_last_error(const char* message, const char* file, int line, bool ends) {
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return;
    ::fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, message, cudaGetErrorString(e), (int)e);
    if (ends) ::exit(EXIT_FAILURE);
}
}  // namespace laptop
#define checkCudaErrors(call) laptop::check_call((int)(call), #call, __FILE__, __LINE__)
#define getLastCudaError(message) laptop::check_last_error(message, __FILE__, __LINE__, true)
#define printLastCudaError(message) laptop::check_last_error(message, __FILE__, __LINE__, false)

inline int _ConvertSMVer2Cores(int, int) { return 64; }              // of sm_80
inline const char* _ConvertSMVer2ArchName(int, int) { return "Ampere"; }
inline int ftoi(float value) { return value >= 0 ? (int)(value + 0.5f) : (int)(value - 0.5f); }
inline int gpuGetMaxGflopsDeviceId() { return 0; }
inline int gpuDeviceInit(int) { return 0; }
inline int findIntegratedGPU() { return -1; }
inline bool checkCudaCapabilities(int major, int minor) { return major < 8 || (major == 8 && minor == 0); }
inline int findCudaDevice(int, const char**) {
    ::printf("Device 0: \"%s\" with compute capability 8.0\n\n", laptop::model_card().name);
    return 0;
}
