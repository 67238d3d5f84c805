#pragma once
#error "cuRAND (curand.h) is not supported here: pass random numbers in as an array"
