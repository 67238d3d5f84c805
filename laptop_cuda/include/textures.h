// Textures, surfaces and CUDA arrays: their names compile; a call in host code answers cudaErrorNotSupported, one in a
// kernel is an error of kind "not supported" where it is reached.
#pragma once

typedef unsigned long long cudaTextureObject_t, cudaSurfaceObject_t;
typedef struct cudaArray* cudaArray_t;
typedef const struct cudaArray* cudaArray_const_t;
typedef struct cudaMipmappedArray* cudaMipmappedArray_t;
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum cudaChannelFormatKind { cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned, cudaChannelFormatKindFloat,
                             cudaChannelFormatKindNone };
enum cudaResourceType { cudaResourceTypeArray, cudaResourceTypeMipmappedArray, cudaResourceTypeLinear,
                        cudaResourceTypePitch2D };
enum { cudaTextureType1D = 1, cudaTextureType2D = 2, cudaTextureType3D = 3, cudaTextureTypeCubemap = 12,
       cudaTextureType1DLayered = 241, cudaTextureType2DLayered = 242, cudaTextureTypeCubemapLayered = 252,
       cudaArrayDefault = 0, cudaArrayLayered = 1, cudaArraySurfaceLoadStore = 2, cudaArrayCubemap = 4 };
struct cudaChannelFormatDesc { int x, y, z, w; cudaChannelFormatKind f; };
struct cudaExtent { size_t width, height, depth; };
struct cudaPos { size_t x, y, z; };
struct cudaPitchedPtr { void* ptr; size_t pitch, xsize, ysize; };
struct cudaMemcpy3DParms {
    cudaArray_t srcArray;
    cudaPos srcPos;
    cudaPitchedPtr srcPtr;
    cudaArray_t dstArray;
    cudaPos dstPos;
    cudaPitchedPtr dstPtr;
    cudaExtent extent;
    cudaMemcpyKind kind;
};
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
struct textureReference {
    int normalized = 0;
    cudaTextureFilterMode filterMode = cudaFilterModePoint;
    cudaTextureAddressMode addressMode[3] = {};
    cudaChannelFormatDesc channelDesc = {};
};
template <class T, int Type = cudaTextureType1D, cudaTextureReadMode = cudaReadModeElementType>
struct texture : textureReference {};
template <class T, int Type = cudaTextureType1D>
struct surface {};

inline cudaExtent make_cudaExtent(size_t w, size_t h, size_t d) { return {w, h, d}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* p, size_t pitch, size_t x, size_t y) { return {p, pitch, x, y}; }
inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) { return {x, y, z, w, f}; }
template <class T>
cudaChannelFormatDesc cudaCreateChannelDesc() { return {int(8 * sizeof(T)), 0, 0, 0, cudaChannelFormatKindFloat}; }

LAPTOP_WITHOUT(cudaMallocArray) LAPTOP_WITHOUT(cudaMalloc3DArray) LAPTOP_WITHOUT(cudaFreeArray) LAPTOP_WITHOUT(cudaMalloc3D)
LAPTOP_WITHOUT(cudaMallocMipmappedArray) LAPTOP_WITHOUT(cudaFreeMipmappedArray) LAPTOP_WITHOUT(cudaGetMipmappedArrayLevel)
LAPTOP_WITHOUT(cudaMemcpyToArray) LAPTOP_WITHOUT(cudaMemcpyFromArray) LAPTOP_WITHOUT(cudaMemcpy2DToArray)
LAPTOP_WITHOUT(cudaMemcpy2DFromArray) LAPTOP_WITHOUT(cudaMemcpy2DToArrayAsync) LAPTOP_WITHOUT(cudaMemcpyToArrayAsync)
LAPTOP_WITHOUT(cudaMemcpy3D) LAPTOP_WITHOUT(cudaMemcpy3DAsync) LAPTOP_WITHOUT(cudaMemset3D) LAPTOP_WITHOUT(cudaArrayGetInfo)
LAPTOP_WITHOUT(cudaBindTexture) LAPTOP_WITHOUT(cudaBindTexture2D) LAPTOP_WITHOUT(cudaBindTextureToArray)
LAPTOP_WITHOUT(cudaUnbindTexture) LAPTOP_WITHOUT(cudaBindSurfaceToArray) LAPTOP_WITHOUT(cudaCreateTextureObject)
LAPTOP_WITHOUT(cudaDestroyTextureObject) LAPTOP_WITHOUT(cudaCreateSurfaceObject) LAPTOP_WITHOUT(cudaDestroySurfaceObject)
LAPTOP_WITHOUT(cudaGetChannelDesc) LAPTOP_WITHOUT(cudaGetTextureObjectResourceDesc)

// By object with the type named, by reference, and the old form with a place for the answer.
#define LAPTOP_FETCH(name)                                                                                           \
    template <class T, class... A>                                                                                   \
    LAPTOP_FN T name(cudaTextureObject_t, A...) { laptop::not_supported(#name " (textures)", LAPTOP_SITE); }         \
    template <class T, class... A>                                                                                   \
    LAPTOP_FN void name(T*, cudaTextureObject_t, A...) { laptop::not_supported(#name " (textures)", LAPTOP_SITE); }  \
    template <class T, int Type, cudaTextureReadMode Mode, class... A>                                               \
    LAPTOP_FN std::conditional_t<Mode == cudaReadModeElementType, T, float> name(texture<T, Type, Mode>&, A...) {    \
        laptop::not_supported(#name " (textures)", LAPTOP_SITE);                                                     \
    }
LAPTOP_FETCH(tex1D) LAPTOP_FETCH(tex1Dfetch) LAPTOP_FETCH(tex1DLod) LAPTOP_FETCH(tex1DLayered)
LAPTOP_FETCH(tex2D) LAPTOP_FETCH(tex2DLod) LAPTOP_FETCH(tex2DLayered) LAPTOP_FETCH(tex2Dgather) LAPTOP_FETCH(tex2DGrad)
LAPTOP_FETCH(tex3D) LAPTOP_FETCH(tex3DLod) LAPTOP_FETCH(texCubemap) LAPTOP_FETCH(texCubemapLayered)
#undef LAPTOP_FETCH
#define LAPTOP_SURFACE(dimension)                                                                                    \
    template <class T, class... A>                                                                                   \
    LAPTOP_FN T surf##dimension##read(A...) { laptop::not_supported("surf" #dimension "read (surfaces)", LAPTOP_SITE); } \
    template <class T, class... A>                                                                                   \
    LAPTOP_FN void surf##dimension##read(T*, A...) { laptop::not_supported("surf" #dimension "read (surfaces)", LAPTOP_SITE); } \
    template <class... A>                                                                                            \
    LAPTOP_FN void surf##dimension##write(A...) { laptop::not_supported("surf" #dimension "write (surfaces)", LAPTOP_SITE); }
LAPTOP_SURFACE(1D) LAPTOP_SURFACE(2D) LAPTOP_SURFACE(3D) LAPTOP_SURFACE(2DLayered) LAPTOP_SURFACE(Cubemap)
#undef LAPTOP_SURFACE
