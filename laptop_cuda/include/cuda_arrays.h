// CUDA arrays: device memory in rows of texels, made for textures and surfaces, and the copies into and out of it. Their
// layout on a card is not known; here they are rows without gaps.
#pragma once
#include "cuda_runtime.h"
#include "texture_fetch.h"

enum { cudaArrayDefault = 0, cudaArrayLayered = 1, cudaArraySurfaceLoadStore = 2, cudaArrayCubemap = 4,
       cudaArrayTextureGather = 8 };
struct cudaArray {               // kept after cudaFreeArray, without its memory
    laptop::Image image;
    cudaChannelFormatDesc desc;
    cudaExtent extent;
    unsigned flags;
};

namespace laptop {
// What a type consists of: float4 of four floats, int of one int.
template <class T, class = void> struct parts { typedef T type; };
template <class T> struct parts<T, std::void_t<decltype(T::x)>> { typedef decltype(T::x) type; };
template <class T> using part_t = typename parts<T>::type;
template <class T> constexpr int n_parts = sizeof(T) / sizeof(part_t<T>);

inline bool set_format(Image& m, const cudaChannelFormatDesc& d) {
    int bits[4] = {d.x, d.y, d.z, d.w}, n = 0;
    while (n < 4 && bits[n]) ++n;
    for (int i = 1; i < n; ++i) {
        if (bits[i] != d.x) return false;
    }
    bool known = d.x == 32 || d.x == 16 || (d.x == 8 && d.f != cudaChannelFormatKindFloat);
    m.channels = (uint8_t)n, m.bits = (uint8_t)d.x, m.kind = (Image::Kind)d.f;
    return known && (n == 1 || n == 2 || n == 4) && d.f >= 0 && d.f < cudaChannelFormatKindNone;
}

inline bool within(const cudaExtent& e, size_t width, size_t height, size_t depth) {
    return e.width > 0 && e.width <= width && e.height <= height && e.depth <= depth;
}
inline bool is_possible(const cudaExtent& e, bool layered, bool cube) {
    const cudaDeviceProp& card = model_card();
    const int* most = card.maxTexture2DLayered;
    if (cube && (e.width != e.height || !e.depth || e.depth % 6 || (!layered && e.depth != 6))) return false;
    if (layered || cube) return e.depth && within(e, most[0], most[1], most[2]);
    if (e.depth) return e.height && within(e, card.maxTexture3D[0], card.maxTexture3D[1], card.maxTexture3D[2]);
    return within(e, card.maxTexture2D[0], card.maxTexture2D[1], 0);
}
inline bool shape_array(Image& m, const cudaExtent& e, unsigned flags) {
    bool layered = flags & cudaArrayLayered;
    size_t slices = e.depth ? e.depth : 1, rows = e.height ? e.height : 1;
    m.cube = flags & cudaArrayCubemap;
    m.shape = Image::ARRAY;
    m.layers = layered || m.cube ? (uint32_t)slices : 0;
    m.size[0] = (uint32_t)e.width, m.size[1] = (uint32_t)e.height, m.size[2] = m.layers ? 0 : (uint32_t)e.depth;
    m.pitch = e.width * m.texel(), m.slice = m.pitch * rows;
    return is_possible(e, layered, m.cube);
}

inline cudaError_t make_array(const char* name, cudaArray_t* to, const cudaChannelFormatDesc* d, const cudaExtent& e,
                              unsigned flags) {
    if (sticky_error()) return (cudaError_t)sticky_error();
    Image m = {};
    if (!to || !d) return answer(cudaErrorInvalidValue);
    if (!set_format(m, *d)) return answer(cudaErrorInvalidChannelDescriptor);
    if (!shape_array(m, e, flags)) return answer(cudaErrorInvalidValue);
    m.data = (char*)device_malloc(m.slice * (e.depth ? e.depth : 1), name, (unsigned)m.texel());
    if (!m.data) return answer(cudaErrorMemoryAllocation);
    *to = new cudaArray{m, *d, e, flags};
    return cudaSuccess;
}

// One side of a copy: memory in rows and slices, from a position on.
struct Rows {
    char* data;
    size_t pitch, slice;
    char* at(size_t y, size_t z) const { return data + z * slice + y * pitch; }
};
inline bool has(const cudaArray* a, const cudaPos& at, const cudaExtent& e) {        // in texels
    size_t rows = a->extent.height ? a->extent.height : 1, slices = a->extent.depth ? a->extent.depth : 1;
    return a->image.data && at.x + e.width <= a->extent.width && at.y + e.height <= rows && at.z + e.depth <= slices;
}
inline Rows rows_of(const cudaArray* a, const cudaPos& at) {
    const Image& m = a->image;
    return {m.data + at.z * m.slice + at.y * m.pitch + at.x * m.texel(), m.pitch, m.slice};
}
inline Rows rows_of(const cudaPitchedPtr& p, const cudaPos& at) {
    size_t slice = p.pitch * p.ysize;
    return {(char*)p.ptr + at.z * slice + at.y * p.pitch + at.x, p.pitch, slice};
}
inline cudaError_t copy_rows(const Rows& to, const Rows& from, size_t bytes, size_t rows, size_t slices, cudaMemcpyKind kind) {
    AsDevice as;
    cudaError_t e = cudaSuccess;
    for (size_t z = 0; z < slices; ++z)
        for (size_t y = 0; y < rows && e == cudaSuccess; ++y) e = copy(to.at(y, z), from.at(y, z), bytes, kind);
    return e;
}
// The extent counts texels if an array takes part, else bytes; a position in memory counts bytes.
inline cudaError_t copy_3d(const cudaMemcpy3DParms& p) {
    const cudaArray *a = p.srcArray, *b = p.dstArray;
    bool sides = !a != !p.srcPtr.ptr && !b != !p.dstPtr.ptr;
    if (!sides || (a && b && a->image.texel() != b->image.texel())) return answer(cudaErrorInvalidValue);
    if ((a && !has(a, p.srcPos, p.extent)) || (b && !has(b, p.dstPos, p.extent))) return answer(cudaErrorInvalidValue);
    size_t bytes = p.extent.width * (a ? a->image.texel() : b ? b->image.texel() : 1);
    return copy_rows(b ? rows_of(b, p.dstPos) : rows_of(p.dstPtr, p.dstPos),
                     a ? rows_of(a, p.srcPos) : rows_of(p.srcPtr, p.srcPos), bytes, p.extent.height, p.extent.depth, p.kind);
}

// A rectangle of an array's first slice: x and width in bytes.
inline bool rectangle(const cudaArray* a, size_t x, size_t y, size_t width, size_t height, Rows& found) {
    size_t rows = a && a->extent.height ? a->extent.height : 1;
    if (!a || !a->image.data || x + width > a->image.pitch || y + height > rows) return false;
    found = {a->image.data + y * a->image.pitch + x, a->image.pitch, a->image.slice};
    return true;
}
// A run of bytes that goes on in the next row.
inline char* run_of_bytes(const cudaArray* a, size_t x, size_t y, size_t bytes) {
    if (!a || !a->image.data || x + y * a->image.pitch + bytes > a->image.slice) return nullptr;
    return a->image.data + y * a->image.pitch + x;
}
}  // namespace laptop

// ------------------------------------------------------------------ formats
inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
    return {x, y, z, w, f};
}
template <class T>
cudaChannelFormatDesc cudaCreateChannelDesc() {
    typedef laptop::part_t<T> part;
    constexpr int n = laptop::n_parts<T>, bits = 8 * sizeof(part);
    if (!std::is_arithmetic<part>::value || bits > 32) return {0, 0, 0, 0, cudaChannelFormatKindNone};
    return {bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 3 ? bits : 0,
            std::is_floating_point<part>::value ? cudaChannelFormatKindFloat
            : std::is_unsigned<part>::value     ? cudaChannelFormatKindUnsigned
                                                : cudaChannelFormatKindSigned};
}
inline cudaChannelFormatDesc cudaCreateChannelDescHalf() { return {16, 0, 0, 0, cudaChannelFormatKindFloat}; }
inline cudaChannelFormatDesc cudaCreateChannelDescHalf1() { return cudaCreateChannelDescHalf(); }
inline cudaChannelFormatDesc cudaCreateChannelDescHalf2() { return {16, 16, 0, 0, cudaChannelFormatKindFloat}; }
inline cudaChannelFormatDesc cudaCreateChannelDescHalf4() { return {16, 16, 16, 16, cudaChannelFormatKindFloat}; }
inline cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* d, cudaArray_const_t a) {
    if (!d || !a) return laptop::answer(cudaErrorInvalidValue);
    *d = a->desc;
    return cudaSuccess;
}

// ------------------------------------------------------------------ memory
// Macros too, as cudaMalloc is: an array gets its name from the text of the argument.
inline cudaError_t laptop_cudaMallocArray(const char* text, cudaArray_t* a, const cudaChannelFormatDesc* d, size_t width,
                                          size_t height = 0, unsigned flags = 0) {
    return laptop::make_array(text, a, d, {width, height, 0}, flags);
}
inline cudaError_t laptop_cudaMalloc3DArray(const char* text, cudaArray_t* a, const cudaChannelFormatDesc* d, cudaExtent e,
                                            unsigned flags = 0) {
    return laptop::make_array(text, a, d, e, flags);
}
#define cudaMallocArray(...) laptop_cudaMallocArray(#__VA_ARGS__, __VA_ARGS__)
#define cudaMalloc3DArray(...) laptop_cudaMalloc3DArray(#__VA_ARGS__, __VA_ARGS__)
inline cudaError_t cudaFreeArray(cudaArray_t a) {
    if (!a) return laptop::answer(cudaSuccess);
    if (!laptop::device_free(a->image.data) || !a->image.data) return laptop::answer(cudaErrorInvalidValue);
    a->image.data = nullptr;
    return laptop::answer(cudaSuccess);
}
inline cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* d, cudaExtent* e, unsigned* flags, cudaArray_t a) {
    if (!a) return laptop::answer(cudaErrorInvalidValue);
    if (d) *d = a->desc;
    if (e) *e = a->extent;
    if (flags) *flags = a->flags;
    return cudaSuccess;
}
inline cudaError_t cudaMalloc3D(cudaPitchedPtr* p, cudaExtent e) {
    p->xsize = e.width, p->ysize = e.height;
    return cudaMallocPitch(&p->ptr, &p->pitch, e.width, e.height * e.depth);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent e) {
    cudaError_t answer = cudaSuccess;
    for (size_t z = 0; z < e.depth && answer == cudaSuccess; ++z)
        answer = cudaMemset2D((char*)p.ptr + z * p.pitch * p.ysize, p.pitch, value, e.width, e.height);
    return answer;
}
inline cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent e, cudaStream_t = nullptr) {
    return laptop::now_or_captured([=] { return cudaMemset3D(p, value, e); });
}
LAPTOP_WITHOUT(cudaMallocMipmappedArray) LAPTOP_WITHOUT(cudaFreeMipmappedArray) LAPTOP_WITHOUT(cudaGetMipmappedArrayLevel)

// ------------------------------------------------------------------ copies
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
    return p ? laptop::copy_3d(*p) : laptop::answer(cudaErrorInvalidValue);
}
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t = nullptr) {
    cudaMemcpy3DParms all = *p;
    return laptop::now_or_captured([=] { return laptop::copy_3d(all); });
}
inline cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                       size_t height, cudaMemcpyKind kind) {
    laptop::Rows rows;
    if (!laptop::rectangle(to, x, y, width, height, rows)) return laptop::answer(cudaErrorInvalidValue);
    return laptop::copy_rows(rows, {(char*)from, pitch, 0}, width, height, 1, kind);
}
inline cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                         size_t height, cudaMemcpyKind kind) {
    laptop::Rows rows;
    if (!laptop::rectangle(from, x, y, width, height, rows)) return laptop::answer(cudaErrorInvalidValue);
    return laptop::copy_rows({(char*)to, pitch, 0}, rows, width, height, 1, kind);
}
inline cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t x,
                                            size_t y, size_t width, size_t height,
                                            cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
    laptop::Rows rows;
    if (!laptop::rectangle(from, x, y, width, height, rows)) return laptop::answer(cudaErrorInvalidValue);
    return cudaMemcpy2DToArray(to, to_x, to_y, rows.data, rows.pitch, width, height, kind);
}
inline cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t n, cudaMemcpyKind kind) {
    char* place = laptop::run_of_bytes(to, x, y, n);
    return place ? laptop::copy(place, from, n, kind) : laptop::answer(cudaErrorInvalidValue);
}
inline cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t n, cudaMemcpyKind kind) {
    const char* place = laptop::run_of_bytes(from, x, y, n);
    return place ? laptop::copy(to, place, n, kind) : laptop::answer(cudaErrorInvalidValue);
}
inline cudaError_t cudaMemcpyArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t x,
                                          size_t y, size_t n, cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
    const char* place = laptop::run_of_bytes(from, x, y, n);
    return place ? cudaMemcpyToArray(to, to_x, to_y, place, n, kind) : laptop::answer(cudaErrorInvalidValue);
}
#define LAPTOP_ASYNC(name, parameters, ...)                                     \
    inline cudaError_t name##Async parameters {                                 \
        return laptop::now_or_captured([=] { return name(__VA_ARGS__); });      \
    }
LAPTOP_ASYNC(cudaMemcpy2DToArray, (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                                   size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr),
             to, x, y, from, pitch, width, height, kind)
LAPTOP_ASYNC(cudaMemcpy2DFromArray, (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr),
             to, pitch, from, x, y, width, height, kind)
LAPTOP_ASYNC(cudaMemcpyToArray, (cudaArray_t to, size_t x, size_t y, const void* from, size_t n, cudaMemcpyKind kind,
                                 cudaStream_t = nullptr), to, x, y, from, n, kind)
LAPTOP_ASYNC(cudaMemcpyFromArray, (void* to, cudaArray_const_t from, size_t x, size_t y, size_t n, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr), to, from, x, y, n, kind)
#undef LAPTOP_ASYNC
