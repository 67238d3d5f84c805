// Of CUB, BlockReduce and WarpReduce exist here; any other name is an error of the compiler.
#pragma once
#include "block/block_reduce.cuh"
