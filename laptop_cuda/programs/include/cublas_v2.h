#pragma once
#error "cuBLAS (cublas_v2.h) is a library of the GPU and is not supported here: write the product as a kernel"
