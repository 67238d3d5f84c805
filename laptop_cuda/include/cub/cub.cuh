// What exists here of CUB; any other name is an error of the compiler.
#pragma once
#include "device/laptop_device.cuh"
