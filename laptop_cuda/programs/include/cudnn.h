#pragma once
#error "cuDNN (cudnn.h) is a library of the GPU and is not supported here"
