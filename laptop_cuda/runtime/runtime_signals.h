#pragma once
#include <setjmp.h>

namespace laptop {
extern sigjmp_buf way_out;       // set by the launch, taken by every error
bool was_interrupted();
}  // namespace laptop
