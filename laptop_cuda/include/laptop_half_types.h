// The 16-bit types, for sources that get them through the header of a library (cuBLAS, torch) which is left out here.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
