#pragma once
#include "../block/block_reduce.cuh"
