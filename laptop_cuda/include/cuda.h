// What programs of the runtime API take from the driver's header: tensor maps, which this machine cannot copy by.
#pragma once
#include "cuda_runtime.h"
#include "tensor_maps.h"
