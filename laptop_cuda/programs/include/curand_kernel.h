// cuRAND in kernels. Numbers equal a GPU's except curand_poisson's; without MRG32k3a, MTGP32 and Sobol.
#pragma once
#include "curand_generators.h"

namespace laptop {
[[noreturn]] inline void no_such_generator(const void* site) {
    not_supported("this generator of curand (XORWOW and Philox4_32_10 are)", site);
}
template <class S>
LAPTOP_QUIET S& touched(S* s, const void* site) {        // the state is read and written by each call
    if (std::is_base_of<OtherGenerator, S>::value) no_such_generator(site);
    if (LAPTOP_TRACED) will_read(s, sizeof(S), site), will_write(s, sizeof(S), site);
    return *s;
}
}  // namespace laptop

template <class S>
LAPTOP_FN void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, S* s) {
    if constexpr (std::is_same<S, curandStateXORWOW>::value || std::is_same<S, curandStatePhilox4_32_10>::value) {
        if (LAPTOP_TRACED) laptop::will_write(s, sizeof *s, LAPTOP_SITE);
        laptop::start(*s, seed, subsequence, offset);
    } else laptop::no_such_generator(LAPTOP_SITE);
}
LAPTOP_FN void skipahead(unsigned long long n, curandStateXORWOW* state) {
    curandStateXORWOW& s = laptop::touched(state, LAPTOP_SITE);
    laptop::xorwow_ahead(s.v, n, 0);
    s.d += 362437u * (uint32_t)n;
}
LAPTOP_FN void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
    laptop::xorwow_ahead(laptop::touched(state, LAPTOP_SITE).v, n, 67);
}
LAPTOP_FN void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
    curandStatePhilox4_32_10& s = laptop::touched(state, LAPTOP_SITE);
    laptop::advance(s.ctr, (s.STATE + n % 4) / 4 + n / 4, 0);
    s.STATE = (s.STATE + n) % 4;
    s.output = laptop::philox(s.ctr, s.key);
}
LAPTOP_FN void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
    curandStatePhilox4_32_10& s = laptop::touched(state, LAPTOP_SITE);
    laptop::advance(s.ctr, 0, n);
    s.output = laptop::philox(s.ctr, s.key);
}

#define LAPTOP_RANDOM(Result, name, value)                        \
    template <class S>                                            \
    LAPTOP_FN Result name(S* state) {                             \
        S& s = laptop::touched(state, LAPTOP_SITE);               \
        return value;                                             \
    }
LAPTOP_RANDOM(unsigned int, curand, laptop::next(s))
LAPTOP_RANDOM(uint4, curand4, laptop::next_four(s))
LAPTOP_RANDOM(float, curand_uniform, laptop::uniform(laptop::next(s)))
LAPTOP_RANDOM(double, curand_uniform_double, laptop::uniform_double(s))
LAPTOP_RANDOM(float, curand_normal, laptop::normal(s))
LAPTOP_RANDOM(float2, curand_normal2, laptop::two_normals(s))
LAPTOP_RANDOM(double, curand_normal_double, laptop::normal_double(s))
LAPTOP_RANDOM(double2, curand_normal2_double, laptop::two_normals_double(s))
#undef LAPTOP_RANDOM
LAPTOP_FN float4 curand_uniform4(curandStatePhilox4_32_10* state) {
    uint4 x = laptop::next_four(laptop::touched(state, LAPTOP_SITE));
    return float4{laptop::uniform(x.x), laptop::uniform(x.y), laptop::uniform(x.z), laptop::uniform(x.w)};
}
LAPTOP_FN double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
    uint4 x = laptop::next_four(laptop::touched(state, LAPTOP_SITE));
    return double2{laptop::uniform53(x.x, x.y), laptop::uniform53(x.z, x.w)};
}
LAPTOP_FN float4 curand_normal4(curandStatePhilox4_32_10* state) {
    curandStatePhilox4_32_10& s = laptop::touched(state, LAPTOP_SITE);
    float2 a = laptop::two_normals(s), b = laptop::two_normals(s);
    return float4{a.x, a.y, b.x, b.y};
}
template <class S> LAPTOP_FN float curand_log_normal(S* state, float mean, float stddev) {
    return laptop::log_normal(laptop::touched(state, LAPTOP_SITE), mean, stddev);
}
template <class S> LAPTOP_FN double curand_log_normal_double(S* state, double mean, double stddev) {
    return laptop::log_normal_double(laptop::touched(state, LAPTOP_SITE), mean, stddev);
}
template <class S> LAPTOP_FN unsigned int curand_poisson(S* state, double lambda) {
    return laptop::poisson(laptop::touched(state, LAPTOP_SITE), lambda);
}
