#pragma once
#error "cuFFT (cufft.h) is a library of the GPU and is not supported here"
