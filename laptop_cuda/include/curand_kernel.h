#pragma once
#error "cuRAND (curand_kernel.h) is not supported here: pass random numbers in as an array"
