// Names that moved elsewhere.
#pragma once
#include "cuda_runtime.h"
