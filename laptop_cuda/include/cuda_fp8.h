// The 8-bit floats are not supported; files that include this and do not use them are.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
