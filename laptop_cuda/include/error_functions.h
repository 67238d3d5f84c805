// The inverses of erf and erfc, erfcx, the Bessel functions that C has not. Included where a source names one.
#pragma once
#include "cuda_runtime.h"

namespace laptop {
constexpr double TWO_BY_ROOT_PI = 1.1283791670955126;
LAPTOP_QUIET inline double erf_inverted(double x) {      // of 0 to 0.5, by Newton
    double y = x / TWO_BY_ROOT_PI;
    for (int k = 0; k < 6; ++k) y -= (::erf(y) - x) / (TWO_BY_ROOT_PI * ::exp(-y * y));
    return y;
}
LAPTOP_QUIET inline double erfc_inverted(double x) {     // of 0 to 0.5, by Newton on the logarithms
    double y = ::sqrt(-::log(x));
    for (int k = 0; k < 8; ++k) {
        double value = ::erfc(y);
        y += ::log(value / x) * value / (TWO_BY_ROOT_PI * ::exp(-y * y));
    }
    return y;
}
LAPTOP_QUIET inline double inverse_of_erf(double x) {
    double size = ::fabs(x);
    if (!(size < 1)) return size == 1 ? x * HUGE_VAL : NAN;
    return ::copysign(size <= 0.5 ? erf_inverted(size) : erfc_inverted(1 - size), x);
}
LAPTOP_QUIET inline double inverse_of_erfc(double x) {
    if (!(x > 0 && x < 2)) return x == 0 ? HUGE_VAL : x == 2 ? -HUGE_VAL : NAN;
    return x < 0.5 ? erfc_inverted(x) : x > 1.5 ? -erfc_inverted(2 - x) : inverse_of_erf(1 - x);
}
LAPTOP_QUIET inline double scaled_erfc(double x) {       // exp(x * x) * erfc(x)
    if (x > 25) {
        double q = 1 / (2 * x * x);
        double tail = 1 - 5 * q * (1 - 7 * q * (1 - 9 * q * (1 - 11 * q)));
        return TWO_BY_ROOT_PI / 2 / x * (1 - q * (1 - 3 * q * tail));
    }
    if (x < -27) return HUGE_VAL;
    double square = x * x;
    return ::exp(square) * (1 + ::fma(x, x, -square)) * ::erfc(x);
}
LAPTOP_QUIET inline double bessel_i(int order, double x) {          // its series; order 0 or 1
    double q = x * x / 4, term = order ? x / 2 : 1, sum = term;
    for (int k = 1; ::fabs(term) > 1e-17 * ::fabs(sum); ++k) sum += term *= q / ((double)k * (k + order));
    return sum;
}
}  // namespace laptop

#define LAPTOP_BOTH(name, expression)                                  \
    LAPTOP_FN double name(double x) { return expression; }             \
    LAPTOP_FN float name##f(float x) { return (float)(expression); }
LAPTOP_BOTH(erfinv, laptop::inverse_of_erf(x)) LAPTOP_BOTH(erfcinv, laptop::inverse_of_erfc(x))
LAPTOP_BOTH(normcdfinv, -1.4142135623730951 * laptop::inverse_of_erfc(2.0 * x))
LAPTOP_BOTH(erfcx, laptop::scaled_erfc(x)) LAPTOP_BOTH(cyl_bessel_i0, laptop::bessel_i(0, x))
LAPTOP_BOTH(cyl_bessel_i1, laptop::bessel_i(1, x))
#undef LAPTOP_BOTH
