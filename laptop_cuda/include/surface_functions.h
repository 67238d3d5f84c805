// Surfaces: arrays that kernels read and write, at bytes of a row.
#pragma once
#include "texture_types.h"

struct surfaceReference {
    cudaChannelFormatDesc channelDesc = {};
    mutable cudaSurfaceObject_t laptop_bound = 0;            // programs bind references that they hold as const
    LAPTOP_QUIET operator cudaSurfaceObject_t() const { return laptop_bound; }
};
template <class T, int Type = cudaSurfaceType1D>
struct surface : surfaceReference {};

namespace laptop {
struct Bytes { long long at[3]; };
template <class T>
LAPTOP_FN T surface_read(uint64_t object, const Fetch& f, const Bytes& b, cudaSurfaceBoundaryMode mode) {
    T value;
    const char* p = surface_place(object, f, b.at, sizeof(T), (Outside)mode, false);
    if (p) copy_unseen((void*)&value, p, sizeof(T));
    else __builtin_memset((void*)&value, 0, sizeof(T));
    return value;
}
template <class T>
LAPTOP_FN void surface_write(const T& value, uint64_t object, const Fetch& f, const Bytes& b, cudaSurfaceBoundaryMode mode) {
    char* p = surface_place(object, f, b.at, sizeof(T), (Outside)mode, true);
    if (p) copy_unseen(p, (const void*)&value, sizeof(T));
}
}  // namespace laptop

#define LAPTOP_LIST(...) __VA_ARGS__
#define LAPTOP_SURFACE(name, parameters, dimensions, layer, ...)                                             \
    template <class T>                                                                                       \
    LAPTOP_FN T name##read(cudaSurfaceObject_t object, LAPTOP_LIST parameters,                               \
                           cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                            \
        const laptop::Fetch f = {#name "read", LAPTOP_SITE, dimensions, layer, {}};                          \
        return laptop::surface_read<T>(object, f, {{__VA_ARGS__}}, mode);                                    \
    }                                                                                                        \
    template <class T>                                                                                       \
    LAPTOP_FN void name##read(T* to, cudaSurfaceObject_t object, LAPTOP_LIST parameters,                     \
                              cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                         \
        const laptop::Fetch f = {#name "read", LAPTOP_SITE, dimensions, layer, {}};                          \
        T value = laptop::surface_read<T>(object, f, {{__VA_ARGS__}}, mode);                                 \
        if (LAPTOP_TRACED) laptop::will_write(to, sizeof(T), f.site);                                        \
        *to = value;                                                                                         \
    }                                                                                                        \
    template <class T>                                                                                       \
    LAPTOP_FN void name##write(T value, cudaSurfaceObject_t object, LAPTOP_LIST parameters,                  \
                               cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                        \
        const laptop::Fetch f = {#name "write", LAPTOP_SITE, dimensions, layer, {}};                         \
        laptop::surface_write(value, object, f, {{__VA_ARGS__}}, mode);                                      \
    }
LAPTOP_SURFACE(surf1D, (int x), 1, laptop::NO_LAYER, x)
LAPTOP_SURFACE(surf2D, (int x, int y), 2, laptop::NO_LAYER, x, y)
LAPTOP_SURFACE(surf3D, (int x, int y, int z), 3, laptop::NO_LAYER, x, y, z)
LAPTOP_SURFACE(surf1DLayered, (int x, int layer), 1, layer, x)
LAPTOP_SURFACE(surf2DLayered, (int x, int y, int layer), 2, layer, x, y)
LAPTOP_SURFACE(surfCubemap, (int x, int y, int face), 2, face, x, y)
LAPTOP_SURFACE(surfCubemapLayered, (int x, int y, int face), 2, face, x, y)
#undef LAPTOP_SURFACE
#undef LAPTOP_LIST
