// cuRAND's host API. A generator is deterministic, but orders its numbers otherwise than cuRAND: other numbers of the same
// distribution. Every pseudo-random type is XORWOW here, or Philox if asked for.
#pragma once
#define CURAND_H_          // by which the samples' helper_cuda.h knows that this header was included
#include "host_launch.h"
#include "curand_generators.h"

enum curandStatus {
    CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_VERSION_MISMATCH = 100, CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102, CURAND_STATUS_TYPE_ERROR = 103, CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105, CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201, CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203, CURAND_STATUS_ARCH_MISMATCH = 204, CURAND_STATUS_INTERNAL_ERROR = 999 };
enum curandRngType {
    CURAND_RNG_TEST = 0, CURAND_RNG_PSEUDO_DEFAULT = 100, CURAND_RNG_PSEUDO_XORWOW = 101, CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141, CURAND_RNG_PSEUDO_MT19937 = 142, CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161 };
enum curandOrdering {
    CURAND_ORDERING_PSEUDO_BEST = 100, CURAND_ORDERING_PSEUDO_DEFAULT = 101, CURAND_ORDERING_PSEUDO_SEEDED = 102,
    CURAND_ORDERING_PSEUDO_LEGACY = 103, CURAND_ORDERING_PSEUDO_DYNAMIC = 104 };
typedef enum curandStatus curandStatus_t;
typedef enum curandRngType curandRngType_t;
typedef enum curandOrdering curandOrdering_t;

struct curandGenerator_st {
    curandRngType_t type;
    bool for_host, started;
    unsigned long long seed, offset;
    curandStateXORWOW xorwow;
    curandStatePhilox4_32_10 of_philox;
};
typedef curandGenerator_st* curandGenerator_t;

namespace laptop {
inline curandStatus_t make_generator(curandGenerator_t* g, curandRngType_t type, bool for_host) {
    if (type == CURAND_RNG_TEST) return CURAND_STATUS_TYPE_ERROR;
    *g = new curandGenerator_st{type, for_host, false, 0, 0, {}, {}};
    return CURAND_STATUS_SUCCESS;
}
template <class T, class F> curandStatus_t generate(curandGenerator_t g, T* out, size_t n, F draw) {
    if (!g) return CURAND_STATUS_NOT_INITIALIZED;
    AsDevice as;
    if (!g->for_host && !is_device_memory(out, n * sizeof(T))) return CURAND_STATUS_LAUNCH_FAILURE;
    if (!g->started) {
        start(g->xorwow, g->seed, 0, g->offset), start(g->of_philox, g->seed, 0, g->offset);
        g->started = true;
    }
    bool philox = g->type == CURAND_RNG_PSEUDO_PHILOX4_32_10;
    for (size_t i = 0; i < n; ++i) out[i] = philox ? draw(g->of_philox) : draw(g->xorwow);
    host_wrote(out, n * sizeof(T));
    return CURAND_STATUS_SUCCESS;
}
}  // namespace laptop

inline curandStatus_t curandCreateGenerator(curandGenerator_t* g, curandRngType_t t) { return laptop::make_generator(g, t, false); }
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t* g, curandRngType_t t) { return laptop::make_generator(g, t, true); }
inline curandStatus_t curandDestroyGenerator(curandGenerator_t g) { delete g; return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t g, unsigned long long seed) {
    g->seed = seed, g->started = false;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t g, unsigned long long offset) {
    g->offset = offset, g->started = false;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGetVersion(int* version) { *version = 10000; return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGenerateSeeds(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }

#define LAPTOP_GENERATE(name, T, drawn, ...)                                                    \
    inline curandStatus_t name(curandGenerator_t g, T* out, size_t n, ##__VA_ARGS__) {          \
        return laptop::generate(g, out, n, [=](auto& s) -> T { return drawn; });                \
    }
LAPTOP_GENERATE(curandGenerate, unsigned int, laptop::next(s))
LAPTOP_GENERATE(curandGenerateUniform, float, laptop::uniform(laptop::next(s)))
LAPTOP_GENERATE(curandGenerateUniformDouble, double, laptop::uniform_double(s))
LAPTOP_GENERATE(curandGenerateNormal, float, mean + stddev * laptop::normal(s), float mean, float stddev)
LAPTOP_GENERATE(curandGenerateNormalDouble, double, mean + stddev * laptop::normal_double(s), double mean, double stddev)
LAPTOP_GENERATE(curandGenerateLogNormal, float, laptop::log_normal(s, mean, stddev), float mean, float stddev)
LAPTOP_GENERATE(curandGenerateLogNormalDouble, double, laptop::log_normal_double(s, mean, stddev), double mean, double stddev)
LAPTOP_GENERATE(curandGeneratePoisson, unsigned int, laptop::poisson(s, lambda), double lambda)
#undef LAPTOP_GENERATE
