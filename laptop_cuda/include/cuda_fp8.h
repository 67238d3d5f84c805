#pragma once
#error "8-bit floats (cuda_fp8.h) are not supported here"
