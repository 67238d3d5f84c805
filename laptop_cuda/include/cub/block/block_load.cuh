#pragma once
#include "../util_ptx.cuh"
