// WebAssembly rounds to the nearest alone.
#pragma once
#include_next <fenv.h>

enum { FE_DOWNWARD = 1, FE_UPWARD, FE_TOWARDZERO };
extern "C" int laptop_page_rounds(int direction);        // ends the launch, unless it is to the nearest
#define fesetround laptop_page_rounds
