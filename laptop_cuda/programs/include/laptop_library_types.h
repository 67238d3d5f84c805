// What kernels and host classes take from the header of a library that is left out here (cuBLAS, torch): the 16-bit
// types, and handles as names of members.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuComplex.h>

typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef int cufftHandle;
typedef struct cublasContext* cublasHandle_t;
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cudnnContext* cudnnHandle_t;
typedef struct cusparseContext* cusparseHandle_t;
typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef struct ncclComm* ncclComm_t;
typedef int cublasStatus_t, cublasOperation_t, cublasGemmAlgo_t, cublasMath_t, cudnnStatus_t, cusparseStatus_t;
