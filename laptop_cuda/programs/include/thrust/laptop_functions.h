// Thrust's pairs, tuples, complex numbers, random numbers, errors and function objects.
#pragma once
#include <complex>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <system_error>
#include <tuple>

#include <host_launch.h>

namespace thrust {

using std::advance, std::distance, std::get, std::make_pair, std::make_tuple, std::pair, std::swap, std::tie,
      std::tuple, std::tuple_element, std::tuple_size;

using std::abs, std::acos, std::acosh, std::arg, std::asin, std::asinh, std::atan, std::atanh, std::complex,
      std::conj, std::cos, std::cosh, std::exp, std::log, std::log10, std::norm, std::polar, std::pow,
      std::proj, std::sin, std::sinh, std::sqrt, std::tan, std::tanh;

namespace random {
using std::discard_block_engine, std::linear_congruential_engine, std::minstd_rand, std::minstd_rand0,
      std::normal_distribution, std::ranlux24, std::ranlux24_base, std::ranlux48, std::ranlux48_base,
      std::subtract_with_carry_engine;
using default_random_engine = minstd_rand;
template <class T = double> using uniform_real_distribution = std::uniform_real_distribution<T>;
template <class T = int> using uniform_int_distribution = std::uniform_int_distribution<T>;
namespace experimental { using std::normal_distribution; }
}  // namespace random
using namespace random;

namespace system {
using std::error_code, std::generic_category, std::system_category, std::system_error;
struct laptop_category : std::error_category {
    const char* name() const noexcept override { return "cuda"; }
    std::string message(int error) const override { return cudaGetErrorString(cudaError_t(error)); }
};
inline const std::error_category& cuda_category() {
    static const laptop_category category;
    return category;
}
}  // namespace system
using system::cuda_category, system::error_code, system::generic_category, system::system_category, system::system_error;

template <class A, class R> struct unary_function { typedef A argument_type; typedef R result_type; };
template <class A, class B, class R>
struct binary_function { typedef A first_argument_type; typedef B second_argument_type; typedef R result_type; };
// `divides<float>` divides in float whatever it is given; `divides<>` in the type of its operands.
#define LAPTOP_BINARY(name, result, expression)                                                \
    template <class T = void>                                                                  \
    struct name : binary_function<T, T, result> {                                              \
        result operator()(const T& a, const T& b) const { return expression; }                 \
    };                                                                                         \
    template <>                                                                                \
    struct name<void> {                                                                        \
        template <class A, class B>                                                            \
        auto operator()(const A& a, const B& b) const { return expression; }                   \
    };
LAPTOP_BINARY(plus, T, a + b) LAPTOP_BINARY(minus, T, a - b) LAPTOP_BINARY(multiplies, T, a * b)
LAPTOP_BINARY(divides, T, a / b) LAPTOP_BINARY(modulus, T, a % b)
LAPTOP_BINARY(maximum, T, a < b ? b : a) LAPTOP_BINARY(minimum, T, b < a ? b : a)
LAPTOP_BINARY(bit_and, T, a & b) LAPTOP_BINARY(bit_or, T, a | b) LAPTOP_BINARY(bit_xor, T, a ^ b)
LAPTOP_BINARY(less, bool, a < b) LAPTOP_BINARY(less_equal, bool, a <= b)
LAPTOP_BINARY(greater, bool, b < a) LAPTOP_BINARY(greater_equal, bool, a >= b)
LAPTOP_BINARY(equal_to, bool, a == b) LAPTOP_BINARY(not_equal_to, bool, !(a == b))
LAPTOP_BINARY(logical_and, bool, a && b) LAPTOP_BINARY(logical_or, bool, a || b)
#undef LAPTOP_BINARY
#define LAPTOP_UNARY(name, result, expression)                                                 \
    template <class T = void>                                                                  \
    struct name : unary_function<T, result> {                                                  \
        result operator()(const T& a) const { return expression; }                             \
    };                                                                                         \
    template <>                                                                                \
    struct name<void> {                                                                        \
        template <class A>                                                                     \
        auto operator()(const A& a) const { return expression; }                               \
    };
LAPTOP_UNARY(identity, T, a) LAPTOP_UNARY(negate, T, -a) LAPTOP_UNARY(square, T, a * a)
LAPTOP_UNARY(logical_not, bool, !a)
#undef LAPTOP_UNARY
template <class = void, class = void>
struct project1st { template <class A, class B> A operator()(const A& a, const B&) const { return a; } };
template <class = void, class = void>
struct project2nd { template <class A, class B> B operator()(const A&, const B& b) const { return b; } };
using std::not_fn;
}  // namespace thrust
