// Texture and surface objects: what they are made from, and how.
#pragma once
#include "cuda_arrays.h"

enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum cudaResourceType { cudaResourceTypeArray, cudaResourceTypeMipmappedArray, cudaResourceTypeLinear,
                        cudaResourceTypePitch2D };
enum cudaResourceViewFormat { cudaResViewFormatNone };
enum { cudaTextureType1D = 1, cudaTextureType2D = 2, cudaTextureType3D = 3, cudaTextureTypeCubemap = 12,
       cudaTextureType1DLayered = 241, cudaTextureType2DLayered = 242, cudaTextureTypeCubemapLayered = 252,
       cudaSurfaceType1D = 1, cudaSurfaceType2D = 2, cudaSurfaceType3D = 3, cudaSurfaceTypeCubemap = 12,
       cudaSurfaceType1DLayered = 241, cudaSurfaceType2DLayered = 242, cudaSurfaceTypeCubemapLayered = 252 };
struct cudaResourceDesc {
    cudaResourceType resType;
    union {
        struct { cudaArray_t array; } array;
        struct { cudaMipmappedArray_t mipmap; } mipmap;
        struct { void* devPtr; cudaChannelFormatDesc desc; size_t sizeInBytes; } linear;
        struct { void* devPtr; cudaChannelFormatDesc desc; size_t width, height, pitchInBytes; } pitch2D;
    } res;
};
struct cudaTextureDesc {
    cudaTextureAddressMode addressMode[3];
    cudaTextureFilterMode filterMode;
    cudaTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned maxAnisotropy;
    cudaTextureFilterMode mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    int disableTrilinearOptimization, seamlessCubemap;
};
struct cudaResourceViewDesc {
    cudaResourceViewFormat format;
    size_t width, height, depth;
    unsigned firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
};

namespace laptop {
constexpr size_t MOST_LINEAR = 1 << 27;  // texels that tex1Dfetch reaches

inline cudaError_t image_of_linear(Image& m, void* p, const cudaChannelFormatDesc& d, size_t bytes) {
    if (!p || (size_t)p % 32) return cudaErrorInvalidValue;
    if (!set_format(m, d)) return cudaErrorInvalidChannelDescriptor;
    size_t n = bytes / m.texel();
    m.data = (char*)p, m.shape = Image::LINEAR, m.size[0] = (uint32_t)(n < MOST_LINEAR ? n : MOST_LINEAR);
    return cudaSuccess;
}
inline cudaError_t image_of_pitched(Image& m, void* p, const cudaChannelFormatDesc& d, size_t width, size_t height,
                                    size_t pitch) {
    const cudaDeviceProp& card = model_card();
    if (!p || (size_t)p % 32 || pitch % card.texturePitchAlignment) return cudaErrorInvalidValue;
    if (!within({width, height, 0}, card.maxTexture2D[0], card.maxTexture2D[1], 0)) return cudaErrorInvalidValue;
    if (!set_format(m, d)) return cudaErrorInvalidChannelDescriptor;
    if (width * m.texel() > pitch) return cudaErrorInvalidValue;
    m.data = (char*)p, m.shape = Image::PITCHED, m.pitch = pitch;
    m.size[0] = (uint32_t)width, m.size[1] = (uint32_t)height;
    return cudaSuccess;
}
inline cudaError_t image_of(Image& m, const cudaResourceDesc& r) {
    const auto& linear = r.res.linear;
    const auto& pitched = r.res.pitch2D;
    switch (r.resType) {
        case cudaResourceTypeArray:
            if (!r.res.array.array || !r.res.array.array->image.data) return cudaErrorInvalidValue;
            m = r.res.array.array->image;
            return cudaSuccess;
        case cudaResourceTypeLinear: return image_of_linear(m, linear.devPtr, linear.desc, linear.sizeInBytes);
        case cudaResourceTypePitch2D:
            return image_of_pitched(m, pitched.devPtr, pitched.desc, pitched.width, pitched.height,
                                    pitched.pitchInBytes);
        default: return without("a mipmapped array");
    }
}
// Without normalized coordinates nothing wraps or mirrors, and linear memory has no numbers between its texels. It fills
// a place, as g++ copies with hooks what a function returns.
LAPTOP_FN void set_sampler(Sampler& s, const Image& m, bool normalized, cudaTextureReadMode mode,
                           cudaTextureFilterMode filter, const cudaTextureAddressMode* address) {
    s.normalized = normalized || m.cube;
    s.as_float = mode == cudaReadModeNormalizedFloat;
    s.linear = filter == cudaFilterModeLinear && m.shape != Image::LINEAR;
    for (int i = 0; i < 3; ++i) {
        bool repeats = address[i] == cudaAddressModeWrap || address[i] == cudaAddressModeMirror;
        s.address[i] = repeats && !s.normalized ? Sampler::CLAMP : (Sampler::Address)address[i];
    }
}
// A mean is one of numbers: of floats, or of integers that are read as such.
inline bool can_filter(const Sampler& s, const Image& m) {
    return !s.linear || m.kind == Image::FLOAT || (s.as_float && m.bits < 32);
}
// What an object was made from, for programs that ask: kept with it.
struct MadeFrom { cudaResourceDesc resource; cudaTextureDesc texture; };
inline const MadeFrom* made_from(unsigned long long object, bool surface) {
    const Texture* t = find_texture(object, surface);
    return t ? (const MadeFrom*)t->made_from : nullptr;
}
inline cudaError_t make_object(unsigned long long* object, Texture& t, const cudaResourceDesc& r,
                               const cudaTextureDesc& d) {
    t.live = true;
    t.made_from = new MadeFrom{r, d};
    *object = new_texture(t);
    return answer(*object ? cudaSuccess : cudaErrorMemoryAllocation);
}
template <class T> cudaError_t tell(T* to, const T* known) {
    if (!to || !known) return answer(cudaErrorInvalidValue);
    *to = *known;
    return cudaSuccess;
}
}  // namespace laptop

inline cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* r,
                                           const cudaTextureDesc* d, const cudaResourceViewDesc* view) {
    laptop::Texture t = {};
    if (!object || !r || !d) return laptop::answer(cudaErrorInvalidValue);
    if (view) return laptop::without("cudaCreateTextureObject with a view of a resource");
    if (cudaError_t wrong = laptop::image_of(t.image, *r)) return laptop::answer(wrong);
    if (d->sRGB) return laptop::without("cudaCreateTextureObject with sRGB");
    laptop::set_sampler(t.sampler, t.image, d->normalizedCoords, d->readMode, d->filterMode, d->addressMode);
    ::memcpy(t.sampler.border, d->borderColor, sizeof t.sampler.border);
    if (!laptop::can_filter(t.sampler, t.image)) return laptop::answer(cudaErrorInvalidFilterSetting);
    return laptop::make_object(object, t, *r, *d);
}
inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
    return laptop::answer(!object || laptop::free_texture(object, false) ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* r) {
    laptop::Texture t = {};
    if (!object || !r || r->resType != cudaResourceTypeArray) return laptop::answer(cudaErrorInvalidValue);
    if (cudaError_t wrong = laptop::image_of(t.image, *r)) return laptop::answer(wrong);
    if (!(r->res.array.array->flags & cudaArraySurfaceLoadStore)) return laptop::answer(cudaErrorInvalidValue);
    t.surface = true;
    return laptop::make_object(object, t, *r, {});
}
inline cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
    return laptop::answer(!object || laptop::free_texture(object, true) ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* r, cudaTextureObject_t object) {
    const laptop::MadeFrom* from = laptop::made_from(object, false);
    return laptop::tell(r, from ? &from->resource : nullptr);
}
inline cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* d, cudaTextureObject_t object) {
    const laptop::MadeFrom* from = laptop::made_from(object, false);
    return laptop::tell(d, from ? &from->texture : nullptr);
}
inline cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* r, cudaSurfaceObject_t object) {
    const laptop::MadeFrom* from = laptop::made_from(object, true);
    return laptop::tell(r, from ? &from->resource : nullptr);
}
