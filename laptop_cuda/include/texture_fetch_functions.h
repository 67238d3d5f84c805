// Fetches from textures: by object with the type named, by an object into a place, and by an old reference.
#pragma once
#include "texture_types.h"

struct textureReference {
    int normalized = 0;
    cudaTextureFilterMode filterMode = cudaFilterModePoint;
    cudaTextureAddressMode addressMode[3] = {cudaAddressModeClamp, cudaAddressModeClamp, cudaAddressModeClamp};
    cudaChannelFormatDesc channelDesc = {};
    int sRGB = 0;
    unsigned maxAnisotropy = 0;
    cudaTextureFilterMode mipmapFilterMode = cudaFilterModePoint;
    float mipmapLevelBias = 0, minMipmapLevelClamp = 0, maxMipmapLevelClamp = 0;
    cudaTextureReadMode laptop_mode = cudaReadModeElementType;
    mutable laptop::Image laptop_bound = {};                 // programs bind references that they hold as const
};
template <class T, int Type = cudaTextureType1D, cudaTextureReadMode Mode = cudaReadModeElementType>
struct texture : textureReference {
    texture(int is_normalized = 0, cudaTextureFilterMode filter = cudaFilterModePoint,
            cudaTextureAddressMode address = cudaAddressModeClamp) {
        normalized = is_normalized, filterMode = filter, laptop_mode = Mode;
        for (cudaTextureAddressMode& a : addressMode) a = address;
        channelDesc = cudaCreateChannelDesc<T>();
    }
};

namespace laptop {
template <class T> LAPTOP_FN T texel_as(const uint32_t* channels) {
    typedef part_t<T> part;
    static_assert(n_parts<T> != 3 && n_parts<T> <= 4 && sizeof(part) <= 4,
                  "laptop: a texel has 1, 2 or 4 channels of up to 32 bits");
    part all[n_parts<T>];
    for (int i = 0; i < n_parts<T>; ++i) {
        if constexpr (std::is_floating_point<part>::value) __builtin_memcpy(&all[i], &channels[i], sizeof(part));
        else all[i] = (part)channels[i];
    }
    T texel;
    __builtin_memcpy((void*)&texel, all, sizeof texel);
    return texel;
}

// What a reference gives: its own type, or floats.
template <int n> struct Floats;
template <> struct Floats<1> { typedef float type; };
template <> struct Floats<2> { typedef float2 type; };
template <> struct Floats<4> { typedef float4 type; };
template <class T, cudaTextureReadMode Mode>
using fetched_t = std::conditional_t<Mode == cudaReadModeElementType, T, typename Floats<n_parts<T>>::type>;

template <class> struct Four;
#define LAPTOP_FOUR(part, name) template <> struct Four<part> { typedef name type; };
LAPTOP_FOUR(float, float4) LAPTOP_FOUR(int, int4) LAPTOP_FOUR(unsigned, uint4) LAPTOP_FOUR(short, short4)
LAPTOP_FOUR(unsigned short, ushort4) LAPTOP_FOUR(char, char4) LAPTOP_FOUR(signed char, char4)
LAPTOP_FOUR(unsigned char, uchar4)
#undef LAPTOP_FOUR
template <class T, cudaTextureReadMode Mode>
using gathered_t = std::conditional_t<Mode == cudaReadModeElementType, typename Four<part_t<T>>::type, float4>;

// The settings of a reference are those that it has when it is read.
LAPTOP_FN const Texture& texture_of(const textureReference& r, const char*, const void*, Texture& made) {
    __builtin_memset((void*)&made, 0, sizeof made);
    copy_unseen((void*)&made.image, &r.laptop_bound, sizeof made.image);
    set_sampler(made.sampler, made.image, r.normalized, r.laptop_mode, r.filterMode, r.addressMode);
    return made;
}
LAPTOP_FN const Texture& texture_of(cudaTextureObject_t object, const char* function, const void* site, Texture&) {
    return texture_of(object, function, site);
}
template <class T> LAPTOP_FN void put(T* to, T texel, const void* site) {
    if (LAPTOP_TRACED) will_write(to, sizeof(T), site);
    *to = texel;
}
}  // namespace laptop

// `ask` fills the four channels: of texture t, for a function that is called at a site.
#define LAPTOP_LIST(...) __VA_ARGS__
#define LAPTOP_ASK(name, texture, ...)                                                                     \
    const char* function = #name;                                                                          \
    const void* site = LAPTOP_SITE;                                                                        \
    uint32_t channels[4];                                                                                  \
    laptop::Texture made;                                                                                  \
    const laptop::Texture& t = laptop::texture_of(texture, function, site, made);                          \
    __VA_ARGS__;
#define LAPTOP_FETCH(name, parameters, reference_gives, ...)                                               \
    template <class T>                                                                                     \
    LAPTOP_FN T name(cudaTextureObject_t object, LAPTOP_LIST parameters) {                                 \
        LAPTOP_ASK(name, object, __VA_ARGS__)                                                              \
        return laptop::texel_as<T>(channels);                                                              \
    }                                                                                                      \
    template <class T>                                                                                     \
    LAPTOP_FN void name(T* to, cudaTextureObject_t object, LAPTOP_LIST parameters) {                       \
        LAPTOP_ASK(name, object, __VA_ARGS__)                                                              \
        laptop::put(to, laptop::texel_as<T>(channels), site);                                              \
    }                                                                                                      \
    template <class T, int Type, cudaTextureReadMode Mode>                                                 \
    LAPTOP_FN reference_gives<T, Mode> name(const texture<T, Type, Mode>& reference, LAPTOP_LIST parameters) { \
        LAPTOP_ASK(name, reference, __VA_ARGS__)                                                           \
        return laptop::texel_as<reference_gives<T, Mode>>(channels);                                       \
    }
#define LAPTOP_AT(dimensions, layer, ...) laptop::Fetch{function, site, dimensions, layer, {__VA_ARGS__}}
#define LAPTOP_SAMPLE(name, parameters, dimensions, layer, ...)                                            \
    LAPTOP_FETCH(name, parameters, laptop::fetched_t,                                                      \
                 laptop::fetch(t, LAPTOP_AT(dimensions, layer, __VA_ARGS__), channels))
#define LAPTOP_SAMPLE_CUBE(name, parameters, cube)                                                         \
    LAPTOP_FETCH(name, parameters, laptop::fetched_t,                                                      \
                 laptop::fetch(t, laptop::on_cube(LAPTOP_AT(3, laptop::NO_LAYER, x, y, z), cube), channels))

LAPTOP_FETCH(tex1Dfetch, (int i), laptop::fetched_t,
             laptop::fetch_element(t, i, LAPTOP_AT(1, laptop::NO_LAYER, 0), channels))
LAPTOP_FETCH(tex2Dgather, (float x, float y, int channel = 0), laptop::gathered_t,
             laptop::gather(t, LAPTOP_AT(2, laptop::NO_LAYER, x, y), channel, channels))
LAPTOP_SAMPLE(tex1D, (float x), 1, laptop::NO_LAYER, x)
LAPTOP_SAMPLE(tex2D, (float x, float y), 2, laptop::NO_LAYER, x, y)
LAPTOP_SAMPLE(tex3D, (float x, float y, float z), 3, laptop::NO_LAYER, x, y, z)
LAPTOP_SAMPLE(tex1DLayered, (float x, int layer), 1, layer, x)
LAPTOP_SAMPLE(tex2DLayered, (float x, float y, int layer), 2, layer, x, y)
LAPTOP_SAMPLE_CUBE(texCubemap, (float x, float y, float z), 0)
LAPTOP_SAMPLE_CUBE(texCubemapLayered, (float x, float y, float z, int layer), layer)

// There are no mipmaps: each level is the only one.
LAPTOP_SAMPLE(tex1DLod, (float x, float), 1, laptop::NO_LAYER, x)
LAPTOP_SAMPLE(tex2DLod, (float x, float y, float), 2, laptop::NO_LAYER, x, y)
LAPTOP_SAMPLE(tex3DLod, (float x, float y, float z, float), 3, laptop::NO_LAYER, x, y, z)
LAPTOP_SAMPLE(tex1DLayeredLod, (float x, int layer, float), 1, layer, x)
LAPTOP_SAMPLE(tex2DLayeredLod, (float x, float y, int layer, float), 2, layer, x, y)
LAPTOP_SAMPLE_CUBE(texCubemapLod, (float x, float y, float z, float), 0)
LAPTOP_SAMPLE_CUBE(texCubemapLayeredLod, (float x, float y, float z, int layer, float), layer)
LAPTOP_SAMPLE(tex1DGrad, (float x, float, float), 1, laptop::NO_LAYER, x)
LAPTOP_SAMPLE(tex2DGrad, (float x, float y, float2, float2), 2, laptop::NO_LAYER, x, y)
LAPTOP_SAMPLE(tex3DGrad, (float x, float y, float z, float4, float4), 3, laptop::NO_LAYER, x, y, z)
LAPTOP_SAMPLE(tex1DLayeredGrad, (float x, int layer, float, float), 1, layer, x)
LAPTOP_SAMPLE(tex2DLayeredGrad, (float x, float y, int layer, float2, float2), 2, layer, x, y)
#undef LAPTOP_SAMPLE_CUBE
#undef LAPTOP_SAMPLE
#undef LAPTOP_AT
#undef LAPTOP_FETCH
#undef LAPTOP_ASK
#undef LAPTOP_LIST
