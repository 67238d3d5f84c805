// A failed assert in a kernel is an error with a name and a line, not the end of the process.
// No include guard: as in C, NDEBUG counts at each inclusion.
#include "engine.h"
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : laptop::assert_failed(#condition, __FILE__, __LINE__))
#endif
