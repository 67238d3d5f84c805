// The numbers by which CUDA's libraries name types of data.
#pragma once
typedef enum cudaDataType_t {
    CUDA_R_32F = 0, CUDA_R_64F, CUDA_R_16F, CUDA_R_8I, CUDA_C_32F, CUDA_C_64F, CUDA_C_16F, CUDA_C_8I, CUDA_R_8U, CUDA_C_8U,
    CUDA_R_32I, CUDA_C_32I, CUDA_R_32U, CUDA_C_32U, CUDA_R_16BF, CUDA_C_16BF, CUDA_R_8F_E4M3 = 28, CUDA_R_8F_E5M2,
    CUDA_R_8F_UE8M0, CUDA_R_6F_E2M3, CUDA_R_6F_E3M2, CUDA_R_4F_E2M1, CUDA_R_8F_UE4M3 = 28
} cudaDataType;
