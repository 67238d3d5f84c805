// The error codes of the runtime API with their names and texts.
#pragma once

#define LAPTOP_ERRORS(X)                                                                        \
    X(cudaSuccess, 0, "no error")                                                               \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                             \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                            \
    X(cudaErrorInitializationError, 3, "initialization error")                                  \
    X(cudaErrorCudartUnloading, 4, "driver shutting down")                                      \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                       \
    X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                      \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                              \
    X(cudaErrorInvalidTexture, 18, "invalid texture reference")                                 \
    X(cudaErrorInvalidTextureBinding, 19, "texture is not bound to a pointer")                  \
    X(cudaErrorInvalidChannelDescriptor, 20, "invalid channel descriptor")                      \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                 \
    X(cudaErrorInvalidFilterSetting, 26, "linear filtering not supported for non-float type")   \
    X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorMissingConfiguration, 52, "__global__ function call is not configured")          \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                            \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                             \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                    \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                           \
    X(cudaErrorSymbolNotFound, 500, "named symbol not found")                                   \
    X(cudaErrorNotReady, 600, "device not ready")                                               \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                 \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")            \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                   \
    X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                 \
    X(cudaErrorAssert, 710, "device-side assert triggered")                                     \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped") \
    X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region") \
    X(cudaErrorMisalignedAddress, 716, "misaligned address")                                    \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                \
    X(cudaErrorNotSupported, 801, "operation not supported")                                    \
    X(cudaErrorUnknown, 999, "unknown error")

#define LAPTOP_CODE(name, code, text) name = code,
enum cudaError_t { LAPTOP_ERRORS(LAPTOP_CODE) };
#undef LAPTOP_CODE
typedef cudaError_t cudaError;

inline const char* cudaGetErrorString(cudaError_t e) {
#define LAPTOP_TEXT(name, code, text) if (e == name) return text;
    LAPTOP_ERRORS(LAPTOP_TEXT)
#undef LAPTOP_TEXT
    return "unrecognized error code";
}
inline const char* cudaGetErrorName(cudaError_t e) {
#define LAPTOP_NAME(name, code, text) if (e == name) return #name;
    LAPTOP_ERRORS(LAPTOP_NAME)
#undef LAPTOP_NAME
    return "unrecognized error code";
}
#undef LAPTOP_ERRORS
