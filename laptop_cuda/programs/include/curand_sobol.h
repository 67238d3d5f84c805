// Sobol's sequences in cuRAND's order, with the direction vectors of Joe and Kuo for the first 16 dimensions.
#pragma once
#include "curand_generators.h"
#include "error_functions.h"

typedef unsigned int curandDirectionVectors32_t[32];
typedef unsigned long long curandDirectionVectors64_t[64];
enum curandDirectionVectorSet {
    CURAND_DIRECTION_VECTORS_32_JOEKUO6 = 101, CURAND_SCRAMBLED_DIRECTION_VECTORS_32_JOEKUO6 = 102,
    CURAND_DIRECTION_VECTORS_64_JOEKUO6 = 103, CURAND_SCRAMBLED_DIRECTION_VECTORS_64_JOEKUO6 = 104
};
typedef enum curandDirectionVectorSet curandDirectionVectorSet_t;

namespace laptop {
constexpr unsigned SOBOL_DIMENSIONS = 16;
template <class Word> constexpr int BITS_OF = 8 * sizeof(Word);

template <class Word> struct Sobol {
    Word i, x, direction_vectors[BITS_OF<Word>];
};
template <class Word> struct SobolDirections {
    Word of[SOBOL_DIMENSIONS][BITS_OF<Word>];
    SobolDirections();
};
// Of each dimension a primitive polynomial, its inner coefficients as bits, and the first numbers of the recurrence.
struct SobolPolynomial { int degree, inner; unsigned char first[6]; };
constexpr SobolPolynomial SOBOL[SOBOL_DIMENSIONS] = {
    {0, 0, {}}, {1, 0, {1}}, {2, 1, {1, 3}}, {3, 1, {1, 3, 1}}, {3, 2, {1, 1, 1}}, {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}}, {5, 2, {1, 1, 5, 5, 17}}, {5, 4, {1, 1, 5, 5, 5}}, {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}}, {5, 13, {1, 1, 1, 3, 11}}, {5, 14, {1, 3, 5, 5, 31}}, {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}}, {6, 16, {1, 3, 1, 13, 27, 49}}};
template <class Word> SobolDirections<Word>::SobolDirections() {
    for (unsigned d = 0; d < SOBOL_DIMENSIONS; ++d) {
        const SobolPolynomial& p = SOBOL[d];
        Word m[BITS_OF<Word>];
        for (int k = 0; k < BITS_OF<Word>; ++k) {
            if (k < p.degree || !p.degree) m[k] = p.degree ? p.first[k] : 1;
            else m[k] = m[k - p.degree] ^ m[k - p.degree] << p.degree;
            for (int j = 1; k >= p.degree && j < p.degree; ++j)
                if (p.inner >> (p.degree - 1 - j) & 1) m[k] ^= m[k - j] << j;
            of[d][k] = m[k] << (BITS_OF<Word> - 1 - k);
        }
    }
}
template <class Word> SobolDirections<Word>& sobol_directions() {
    static SobolDirections<Word> made;
    return made;
}

template <class Word> LAPTOP_QUIET void skip_points(Sobol<Word>& s, unsigned long long n) {      // by the Gray code
    s.i += (Word)n;
    Word gray = s.i ^ s.i >> 1;
    s.x = 0;
    for (int k = 0; k < BITS_OF<Word>; ++k) s.x ^= gray >> k & 1 ? s.direction_vectors[k] : 0;
}
template <class Word> LAPTOP_QUIET void start(Sobol<Word>& s, const Word* directions, unsigned long long offset) {
    copy_unseen(s.direction_vectors, directions, sizeof s.direction_vectors);
    s.i = 0;
    skip_points(s, offset);
}
template <class Word> LAPTOP_QUIET Word next(Sobol<Word>& s) {
    Word point = s.x;
    s.x ^= s.direction_vectors[__builtin_ctzll(~(unsigned long long)s.i++) & (BITS_OF<Word> - 1)];
    return point;
}

LAPTOP_QUIET inline float uniform(unsigned long long x) { return uniform((uint32_t)(x >> 32)); }
LAPTOP_QUIET inline double uniform_double(Sobol<unsigned>& s) { return next(s) * 0x1p-32 + 0x1p-32; }
LAPTOP_QUIET inline double uniform_double(Sobol<unsigned long long>& s) { return (next(s) >> 11) * 0x1p-53 + 0x1p-54; }
template <class Word> LAPTOP_QUIET double normal_double(Sobol<Word>& s) {
    double half = 0.5 / ::ldexp(1.0, BITS_OF<Word>);
    double p = ::ldexp((double)next(s), -BITS_OF<Word>) + half;
    return -1.4142135623730951 * inverse_of_erfc(2 * p);
}
template <class Word> LAPTOP_QUIET float normal(Sobol<Word>& s) { return (float)normal_double(s); }
template <class Word> LAPTOP_QUIET double log_normal_double(Sobol<Word>& s, double mean, double stddev) {
    return ::exp(mean + stddev * normal_double(s));
}
template <class Word> LAPTOP_QUIET float log_normal(Sobol<Word>& s, float mean, float stddev) {
    return (float)log_normal_double(s, mean, stddev);
}
}  // namespace laptop

typedef laptop::Sobol<unsigned int> curandStateSobol32, curandStateSobol32_t;
typedef laptop::Sobol<unsigned long long> curandStateSobol64, curandStateSobol64_t;
