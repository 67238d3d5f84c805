#pragma once
#include "laptop_device.cuh"
