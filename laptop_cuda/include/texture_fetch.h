// What the headers of textures and surfaces share with the runtime, which does the fetches (runtime_textures.cpp).
#pragma once
#include "engine.h"

namespace laptop {

// Texels in rows, slices of rows, and layers or faces, which are slices too. A dimension that an array lacks has the
// size 0.
struct Image {
    enum Shape : uint8_t { ARRAY, LINEAR, PITCHED };
    enum Kind : uint8_t { SIGNED, UNSIGNED, FLOAT };         // in the order of cudaChannelFormatKind
    char* data;
    size_t pitch, slice;         // bytes
    uint32_t size[3];            // texels
    uint32_t layers;             // 0: no layers
    uint8_t channels, bits;      // of a channel
    Kind kind;
    Shape shape;
    bool cube;
    size_t texel() const { return channels * bits / 8u; }
};

struct Sampler {
    enum Address : uint8_t { WRAP, CLAMP, MIRROR, BORDER };  // in the order of cudaTextureAddressMode
    Address address[3];
    bool linear, normalized;
    bool as_float;               // integers of 8 and 16 bits become numbers from 0, or -1, to 1
    uint32_t border[4];          // bits
};

struct Texture {
    Image image;
    Sampler sampler;
    bool surface, live;
    const void* made_from;       // what the header wants to keep with it
};

constexpr int NO_LAYER = -0x7fffffff - 1;
struct Fetch {                   // of a texture, or an access to a surface
    const char* function;
    const void* site;
    int dimensions;
    int layer;
    float at[3];
};

uint64_t new_texture(const Texture&);    // 0: there are too many
bool free_texture(uint64_t object, bool surface);
const Texture* find_texture(uint64_t object, bool surface);
const Texture& texture_of(uint64_t object, const char* function, const void* site);      // or an error

// The four channels as 32 bits each: integers are extended to that, other numbers are floats.
void fetch(const Texture&, const Fetch&, uint32_t* channels);
void fetch_element(const Texture&, long long index, const Fetch&, uint32_t* channels);
void gather(const Texture&, const Fetch&, int channel, uint32_t* four);
Fetch on_cube(const Fetch&, int cube);   // cube: of several; -1: there is one

// An access of `bytes` to a surface at byte x of row y, slice or layer z. Null: it is outside, where reads give 0 and
// writes do nothing.
enum class Outside : int { ZERO, CLAMP, TRAP };              // in the order of cudaSurfaceBoundaryMode
char* surface_place(uint64_t object, const Fetch&, const long long* at, size_t bytes, Outside, bool writes);
}  // namespace laptop
