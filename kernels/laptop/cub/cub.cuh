#pragma once
#error "CUB (cub/cub.cuh) is not supported here beyond cub/block/block_reduce.cuh, block_scan.cuh and cub/warp/warp_reduce.cuh"
