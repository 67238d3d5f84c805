// XORWOW far ahead. A step of its five words is linear over bits, so 2^k steps are a matrix of 160 by 160 bits.
#include <string.h>

#include <memory>

#include "programs.h"

namespace laptop {

namespace {
constexpr int WORDS = 5, BITS = 32 * WORDS, POWERS = 128;
struct Matrix { uint32_t image[BITS][WORDS]; };          // of each unit vector

void step(uint32_t* v) {                                 // Marsaglia, "Xorshift RNGs" (2003)
    uint32_t t = v[0] ^ v[0] >> 2;
    memmove(v, v + 1, 4 * (WORDS - 1));
    v[4] = v[4] ^ v[4] << 4 ^ t ^ t << 1;
}

void apply(const Matrix& m, uint32_t* v) {
    uint32_t sum[WORDS] = {};
    for (int bit = 0; bit < BITS; ++bit) {
        if (!(v[bit / 32] >> bit % 32 & 1)) continue;
        for (int w = 0; w < WORDS; ++w) sum[w] ^= m.image[bit][w];
    }
    memcpy(v, sum, sizeof sum);
}

std::unique_ptr<Matrix[]> powers() {
    std::unique_ptr<Matrix[]> made(new Matrix[POWERS]());
    for (int bit = 0; bit < BITS; ++bit) {
        made[0].image[bit][bit / 32] = 1u << bit % 32;
        step(made[0].image[bit]);
    }
    for (int k = 1; k < POWERS; ++k) {
        for (int bit = 0; bit < BITS; ++bit) {
            memcpy(made[k].image[bit], made[k - 1].image[bit], 4 * WORDS);
            apply(made[k - 1], made[k].image[bit]);
        }
    }
    return made;
}
}  // namespace

void xorwow_ahead(uint32_t* words, uint64_t times, int log_steps) {
    if (!times) return;
    Busy busy;
    static const std::unique_ptr<Matrix[]> of_two = powers();
    for (int k = log_steps; times && k < POWERS; ++k, times >>= 1) {
        if (times & 1) apply(of_two[k], words);
    }
}
}  // namespace laptop
