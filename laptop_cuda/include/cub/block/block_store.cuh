#pragma once
#include "block_scan.cuh"
