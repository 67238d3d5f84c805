// Texture and surface references, which CUDA 12 took away: global variables to which memory is bound.
#pragma once
#include "surface_functions.h"
#include "texture_fetch_functions.h"

namespace laptop {
inline cudaError_t bind(const textureReference& r, cudaError_t wrong, const Image& m) {
    if (wrong) return answer(wrong);
    r.laptop_bound = m;
    Texture made;
    bool filters = can_filter(texture_of(r, nullptr, nullptr, made).sampler, m);
    return answer(filters ? cudaSuccess : cudaErrorInvalidFilterSetting);
}
}  // namespace laptop

// ------------------------------------------------------------------ linear memory
inline cudaError_t cudaBindTexture(size_t* offset, const textureReference& r, const void* p,
                                   const cudaChannelFormatDesc& d, size_t bytes = 0xffffffff) {
    laptop::Image m = {};
    if (offset) *offset = 0;
    return laptop::bind(r, laptop::image_of_linear(m, (void*)p, d, bytes), m);
}
inline cudaError_t cudaBindTexture(size_t* offset, const textureReference& r, const void* p,
                                   size_t bytes = 0xffffffff) {
    return cudaBindTexture(offset, r, p, r.channelDesc, bytes);
}
inline cudaError_t cudaBindTexture(size_t* offset, const textureReference* r, const void* p,
                                   const cudaChannelFormatDesc* d, size_t bytes = 0xffffffff) {
    return cudaBindTexture(offset, *r, p, *d, bytes);
}
inline cudaError_t cudaBindTexture2D(size_t* offset, const textureReference& r, const void* p,
                                     const cudaChannelFormatDesc& d, size_t width, size_t height, size_t pitch) {
    laptop::Image m = {};
    if (offset) *offset = 0;
    return laptop::bind(r, laptop::image_of_pitched(m, (void*)p, d, width, height, pitch), m);
}
inline cudaError_t cudaBindTexture2D(size_t* offset, const textureReference& r, const void* p, size_t width, size_t height,
                                     size_t pitch) {
    return cudaBindTexture2D(offset, r, p, r.channelDesc, width, height, pitch);
}
inline cudaError_t cudaBindTexture2D(size_t* offset, const textureReference* r, const void* p,
                                     const cudaChannelFormatDesc* d, size_t width, size_t height, size_t pitch) {
    return cudaBindTexture2D(offset, *r, p, *d, width, height, pitch);
}
inline cudaError_t cudaGetTextureAlignmentOffset(size_t* offset, const textureReference& r) {
    *offset = 0;
    return laptop::answer(r.laptop_bound.data ? cudaSuccess : cudaErrorInvalidTextureBinding);
}
inline cudaError_t cudaGetTextureAlignmentOffset(size_t* offset, const textureReference* r) {
    return cudaGetTextureAlignmentOffset(offset, *r);
}

// ------------------------------------------------------------------ arrays
inline cudaError_t cudaBindTextureToArray(const textureReference& r, cudaArray_const_t a) {
    bool there = a && a->image.data;
    return laptop::bind(r, there ? cudaSuccess : cudaErrorInvalidResourceHandle, there ? a->image : laptop::Image{});
}
inline cudaError_t cudaBindTextureToArray(const textureReference& r, cudaArray_const_t a, const cudaChannelFormatDesc&) {
    return cudaBindTextureToArray(r, a);
}
inline cudaError_t cudaBindTextureToArray(const textureReference* r, cudaArray_const_t a, const cudaChannelFormatDesc*) {
    return cudaBindTextureToArray(*r, a);
}
inline cudaError_t cudaUnbindTexture(const textureReference& r) {
    r.laptop_bound = {};
    return laptop::answer(cudaSuccess);
}
inline cudaError_t cudaUnbindTexture(const textureReference* r) { return cudaUnbindTexture(*r); }
inline cudaError_t cudaGetTextureReference(const textureReference** r, const void* symbol) {
    *r = (const textureReference*)symbol;
    return laptop::answer(symbol ? cudaSuccess : cudaErrorInvalidTexture);
}
inline cudaError_t cudaBindSurfaceToArray(const surfaceReference& r, cudaArray_const_t a) {
    cudaResourceDesc from = {};
    from.res.array.array = (cudaArray_t)a;
    laptop::free_texture(r.laptop_bound, true);
    return cudaCreateSurfaceObject(&r.laptop_bound, &from);
}
inline cudaError_t cudaBindSurfaceToArray(const surfaceReference& r, cudaArray_const_t a, const cudaChannelFormatDesc&) {
    return cudaBindSurfaceToArray(r, a);
}
inline cudaError_t cudaBindSurfaceToArray(const surfaceReference* r, cudaArray_const_t a, const cudaChannelFormatDesc*) {
    return cudaBindSurfaceToArray(*r, a);
}
