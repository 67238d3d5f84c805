// The names that programs from before CUDA 5 expect of a header of this name, written anew.
#pragma once
#include "helper_cuda.h"
#include "helper_functions.h"

typedef bool CUTBoolean;
#define CUTTrue true
#define CUTFalse false

#define CUDA_SAFE_CALL(call) checkCudaErrors(call)
#define CUDA_SAFE_CALL_NO_SYNC(call) checkCudaErrors(call)
#define CUT_SAFE_CALL(call) laptop::check_call(!(call), #call, __FILE__, __LINE__)
#define CUT_CHECK_ERROR(message) getLastCudaError(message)
#define CUT_BANK_CHECKER(array, index) array[index]
#define CUT_DEVICE_INIT(...) (void)0
#define CUT_EXIT(...) exit(EXIT_SUCCESS)
#define cutilSafeCall(call) checkCudaErrors(call)
#define cutilSafeCallNoSync(call) checkCudaErrors(call)
#define cutilCheckError(call) CUT_SAFE_CALL(call)
#define cutilCheckMsg(message) getLastCudaError(message)
#define cutilBankChecker(array, index) array[index]
#define cutilDeviceInit(...) (void)0
#define cutilExit(...) exit(EXIT_SUCCESS)
#define cutilThreadSynchronize() cudaDeviceSynchronize()
#define cutGetMaxGflopsDeviceId() gpuGetMaxGflopsDeviceId()
#define cutFree(p) free(p)

// Timers by number, from 1.
namespace laptop {
inline std::vector<StopWatchInterface>& timers() {
    static std::vector<StopWatchInterface> all;
    return all;
}
inline StopWatchInterface& timer(unsigned number) {
    if (!number || number > timers().size()) check_call(cudaErrorInvalidValue, "cutCreateTimer is missing", "cutil.h", 0);
    return timers()[number - 1];
}
}  // namespace laptop
inline CUTBoolean cutCreateTimer(unsigned* number) {
    laptop::timers().emplace_back();
    *number = (unsigned)laptop::timers().size();
    return true;
}
inline CUTBoolean cutDeleteTimer(unsigned) { return true; }
inline CUTBoolean cutStartTimer(unsigned number) { return laptop::timer(number).start(), true; }
inline CUTBoolean cutStopTimer(unsigned number) { return laptop::timer(number).stop(), true; }
inline CUTBoolean cutResetTimer(unsigned number) { return laptop::timer(number).reset(), true; }
inline float cutGetTimerValue(unsigned number) { return laptop::timer(number).getTime(); }
inline float cutGetAverageTimerValue(unsigned number) { return laptop::timer(number).getAverageTime(); }

#define cutCheckCmdLineFlag(n, words, name) checkCmdLineFlag(n, words, name)
inline CUTBoolean cutGetCmdLineArgumenti(int n, const char** words, const char* name, int* value) {
    return getCmdLineArgumentValue(n, words, name, value);
}
inline CUTBoolean cutGetCmdLineArgumentf(int n, const char** words, const char* name, float* value) {
    return getCmdLineArgumentValue(n, words, name, value);
}
#define cutGetCmdLineArgumentstr(n, words, name, to) getCmdLineArgumentString(n, words, name, to)
inline CUTBoolean cutComparefe(const float* reference, const float* data, unsigned n, float epsilon) {
    return compareData(reference, data, n, epsilon, 0.f);
}
inline CUTBoolean cutComparef(const float* reference, const float* data, unsigned n) {
    return cutComparefe(reference, data, n, 0.f);
}
#define cutCompareL2fe(reference, data, n, epsilon) sdkCompareL2fe(reference, data, n, epsilon)
