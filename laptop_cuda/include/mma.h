#pragma once
#error "tensor-core fragments (nvcuda::wmma, mma.h) are not supported here"
