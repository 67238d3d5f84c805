// C++17's special functions, where libstdc++'s <cmath> has left them out (cuda_runtime.h).
#if __has_include(<bits/specfun.h>)
#define _GLIBCXX_USE_STD_SPEC_FUNCS 1
#include <bits/specfun.h>
#endif
