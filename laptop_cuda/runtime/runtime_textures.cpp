// Textures and surfaces: from coordinates to texels, by the formulas of the programming guide's appendix on fetching.
// A texel is the one that a coordinate falls into, or the mean of its neighbours with weights of 8 fraction bits. What
// the guide leaves open: coordinates are scaled in single precision, i / N leads to texel i although its float may be
// less, weights are rounded to the nearest, a sum is rounded once, a texel of weight 0 is not read, and NaN counts as 0.
#include "texture_fetch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "runtime.h"
#include "soft_float.h"

namespace laptop {

// ------------------------------------------------------------------ objects
// A handle is given once, so that one kept too long is known for what it is.
constexpr size_t MOST_TEXTURES = 1 << 17;
static std::mutex making;                        // the host may have several threads
static std::vector<Texture>& textures() {
    static std::vector<Texture> all;
    return all;
}

uint64_t new_texture(const Texture& t) {
    std::lock_guard<std::mutex> lock(making);
    std::vector<Texture>& all = textures();
    all.reserve(MOST_TEXTURES);                  // they stay where they are; the pages not used take no memory
    if (all.size() == MOST_TEXTURES) return 0;
    all.push_back(t);
    return all.size();
}

const Texture* find_texture(uint64_t object, bool surface) {
    const std::vector<Texture>& all = textures();
    if (object - 1 >= all.size() || !all[object - 1].live || all[object - 1].surface != surface) return nullptr;
    return &all[object - 1];
}

bool free_texture(uint64_t object, bool surface) {
    const Texture* t = find_texture(object, surface);
    if (t) textures()[object - 1].live = false;
    return t;
}

// ------------------------------------------------------------------ errors
[[noreturn]] static void wrong(const char* kind, const char* reason, const Fetch& f, const char* detail, int action = 0) {
    if (!current) {
        fprintf(stderr, "%s %s\n", f.function, detail);
        abort();
    }
    char text[256];
    snprintf(text, sizeof text, "%s %s", f.function, detail);
    laptop_error e = make_error(kind, reason, f.site, action);
    e.detail = text;
    fail(e);
}

static const Texture& object_of(uint64_t object, bool surface, const Fetch& f) {
    const Texture* t = find_texture(object, surface);
    if (!t) wrong("out of bounds", "texture", f, surface ? "of a surface object that does not exist"
                                                         : "of a texture object that does not exist");
    return *t;
}

const Texture& texture_of(uint64_t object, const char* function, const void* site) {
    return object_of(object, false, Fetch{function, site, 0, NO_LAYER, {}});
}

// Dimensions beyond those of the function may be there with a size of 1: old programs make rows as arrays of n x 1.
static void check_shape(const Image& m, const Fetch& f) {
    bool fits = (m.layers != 0) == (f.layer != NO_LAYER);
    for (int d = f.dimensions; d < 3; ++d) fits &= m.size[d] <= 1;
    if (!m.data) wrong("not supported", "texture", f, "of a texture to which nothing is bound");
    if (m.shape == Image::LINEAR) wrong("not supported", "texture", f, "of linear memory, which only tex1Dfetch reads");
    if (!fits) wrong("not supported", "texture", f, "of an array with other dimensions or layers");
}

// ------------------------------------------------------------------ texels
static uint32_t narrow_channel(const char* p, const Image& m, bool as_float) {
    bool is_signed = m.kind == Image::SIGNED;
    int32_t value;
    if (m.bits == 8) {
        value = is_signed ? (int8_t)*p : (uint8_t)*p;
    } else {
        uint16_t bits;
        memcpy(&bits, p, 2);
        if (m.kind == Image::FLOAT) return bits_of(binary16::widen(bits));
        value = is_signed ? (int16_t)bits : bits;
    }
    if (!as_float) return (uint32_t)value;
    float most = (float)((1 << (m.bits - is_signed)) - 1);
    return bits_of(std::max((float)value / most, -1.0f));    // the lowest of a signed type is -1 too
}

static inline void decode(const char* p, const Image& m, bool as_float, uint32_t* out) {
    out[0] = out[1] = out[2] = out[3] = 0;
    for (unsigned c = 0; c < m.channels; ++c) {
        if (m.bits == 32) memcpy(&out[c], p + 4 * c, 4);
        else out[c] = narrow_channel(p + c * (m.bits / 8), m, as_float);
    }
}

// The texel at whole coordinates; -1 is outside, where the border is.
static inline void read_texel(const Texture& t, const int* at, const Fetch& f, uint32_t* out) {
    const Image& m = t.image;
    if ((at[0] | at[1] | at[2]) < 0) {
        for (unsigned c = 0; c < 4; ++c) out[c] = c < m.channels ? t.sampler.border[c] : 0;
        return;
    }
    size_t slice = m.layers ? std::min<size_t>(std::max(f.layer, 0), m.layers - 1) : at[2];
    const char* p = m.data + slice * m.slice + at[1] * m.pitch + at[0] * m.texel();
    if (current && current->log) touch_image((uintptr_t)p, m.texel(), 0, false, f.site);
    decode(p, m, t.sampler.as_float, out);
}

// ------------------------------------------------------------------ coordinates
static inline float floor_of(float x) {          // of the library's, which takes a call
    if (!(fabsf(x) < 8388608)) return x;         // has no fraction, or is NaN
    float whole = (float)(int)x;
    return whole > x ? whole - 1 : whole;
}

// In texels, of a coordinate that may be normalized. The products are rounded by themselves, on every machine. `slack`:
// of a normalized coordinate's size, which is added where only the texel counts.
static inline float in_texels(const Sampler& s, int axis, float x, uint32_t size, double slack) {
    if (s.normalized) {
        float whole = floor_of(x);
        double more = fabsf(x) < 1e9f ? fabsf(x) * slack : 0;
        if (s.address[axis] == Sampler::WRAP) x -= whole;
        if (s.address[axis] == Sampler::MIRROR) x = fmodf(whole, 2) == 0 ? x - whole : 1 - (x - whole);
        x = (float)((x + more) * size);
    }
    return x == x ? x : 0;
}

// What a whole coordinate leads to: a texel, or -1 for the border. A coordinate that was wrapped or mirrored is at most
// one texel outside.
static inline int texel_at(const Sampler& s, int axis, float whole, uint32_t size) {
    float last = (float)size - 1;
    if (whole >= 0 && whole <= last) return (int)whole;
    if (s.address[axis] == Sampler::BORDER) return -1;
    if (s.address[axis] == Sampler::WRAP) return whole < 0 ? (int)last : 0;
    return whole < 0 ? 0 : (int)last;
}

struct Axis { int texel[2]; double weight[2]; };

static inline Axis axis_of(const Texture& t, int axis, const Fetch& f) {
    uint32_t size = std::max(t.image.size[axis], 1u);
    float x = in_texels(t.sampler, axis, f.at[axis], size, 0) - 0.5f, whole = floor_of(x);
    double weight = isinf(x) ? 0 : (int)((x - whole) * 256.0 + 0.5) / 256.0;         // infinity has no fraction
    return {{texel_at(t.sampler, axis, whole, size), texel_at(t.sampler, axis, whole + 1, size)}, {1 - weight, weight}};
}

// ------------------------------------------------------------------ fetches
static void nearest(const Texture& t, const Fetch& f, uint32_t* out) {
    int at[3] = {};
    for (int d = 0; d < f.dimensions; ++d) {
        uint32_t size = std::max(t.image.size[d], 1u);
        at[d] = texel_at(t.sampler, d, floor_of(in_texels(t.sampler, d, f.at[d], size, 0x1p-22)), size);
    }
    read_texel(t, at, f, out);
}

static void interpolated(const Texture& t, const Fetch& f, uint32_t* out) {
    Axis axis[3];
    double sum[4] = {};
    for (int d = 0; d < f.dimensions; ++d) axis[d] = axis_of(t, d, f);
    for (int corner = 0; corner < 1 << f.dimensions; ++corner) {
        int at[3] = {};
        double weight = 1;
        for (int d = 0; d < f.dimensions; ++d) {
            int side = corner >> d & 1;
            at[d] = axis[d].texel[side];
            weight *= axis[d].weight[side];
        }
        if (weight == 0) continue;
        uint32_t texel[4];
        read_texel(t, at, f, texel);
        for (unsigned c = 0; c < t.image.channels; ++c) sum[c] += weight * float_of(texel[c]);
    }
    for (int c = 0; c < 4; ++c) out[c] = bits_of((float)sum[c]);
}

void fetch(const Texture& t, const Fetch& f, uint32_t* channels) {
    check_shape(t.image, f);
    t.sampler.linear ? interpolated(t, f, channels) : nearest(t, f, channels);
}

// Of linear memory: outside of it there are zeros.
void fetch_element(const Texture& t, long long index, const Fetch& f, uint32_t* channels) {
    const Image& m = t.image;
    if (m.data && m.shape != Image::LINEAR) wrong("not supported", "texture", f, "of what is not linear memory");
    if (!m.data) check_shape(m, f);
    if (index < 0 || index >= (long long)m.size[0]) return (void)memset(channels, 0, 16);
    const char* p = m.data + index * m.texel();
    touch_image((uintptr_t)p, m.texel(), 0, true, f.site);
    decode(p, m, t.sampler.as_float, channels);
}

// One channel of the four texels that a linear fetch would take, from the lower left one on against the clock.
void gather(const Texture& t, const Fetch& f, int channel, uint32_t* four) {
    check_shape(t.image, f);
    Axis x = axis_of(t, 0, f), y = axis_of(t, 1, f);
    const int corner[4][3] = {{x.texel[0], y.texel[1], 0}, {x.texel[1], y.texel[1], 0},
                              {x.texel[1], y.texel[0], 0}, {x.texel[0], y.texel[0], 0}};
    for (int i = 0; i < 4; ++i) {
        uint32_t texel[4];
        read_texel(t, corner[i], f, texel);
        four[i] = texel[channel & 3];
    }
}

// The face that a direction meets, and where on it.
Fetch on_cube(const Fetch& f, int cube) {
    float x = f.at[0], y = f.at[1], z = f.at[2], m, s, t;
    int face;
    if (fabsf(x) >= fabsf(y) && fabsf(x) >= fabsf(z)) {
        face = x >= 0 ? 0 : 1, m = fabsf(x), s = x >= 0 ? -z : z, t = -y;
    } else if (fabsf(y) >= fabsf(z)) {
        face = y >= 0 ? 2 : 3, m = fabsf(y), s = x, t = y >= 0 ? z : -z;
    } else {
        face = z >= 0 ? 4 : 5, m = fabsf(z), s = z >= 0 ? x : -x, t = -y;
    }
    return {f.function, f.site, 2, std::max(cube, 0) * 6 + face, {(s / m + 1) / 2, (t / m + 1) / 2, 0}};
}

// ------------------------------------------------------------------ surfaces
static void outside_surface(const Image& m, const Fetch& f, const long long* at, bool writes) {
    char text[200];
    int n = snprintf(text, sizeof text, "at byte x = %lld", at[0]);
    for (int d = 1; d < f.dimensions; ++d) n += snprintf(text + n, sizeof text - n, ", %c = %lld", "xyz"[d], at[d]);
    if (m.layers) n += snprintf(text + n, sizeof text - n, ", layer %d", f.layer);
    n += snprintf(text + n, sizeof text - n, ": the surface has %u", m.size[0]);
    for (int d = 1; d < f.dimensions; ++d) n += snprintf(text + n, sizeof text - n, " x %u", std::max(m.size[d], 1u));
    n += snprintf(text + n, sizeof text - n, " elements of %zu byte%s", m.texel(), m.texel() > 1 ? "s" : "");
    if (m.layers) snprintf(text + n, sizeof text - n, " in %u layers", m.layers);
    wrong("out of bounds", "surface", f, text, writes);
}

char* surface_place(uint64_t object, const Fetch& f, const long long* at, size_t bytes, Outside outside, bool writes) {
    const Image& m = object_of(object, true, f).image;
    check_shape(m, f);
    long long most[3] = {(long long)(m.size[0] * m.texel() - bytes)}, place[3] = {};
    for (int d = 1; d < 3; ++d) most[d] = (long long)std::max(m.size[d], 1u) - 1;
    bool inside = !m.layers || (unsigned)f.layer < m.layers;
    for (int d = 0; d < f.dimensions; ++d) {
        inside &= at[d] >= 0 && at[d] <= most[d];
        place[d] = std::min(std::max(at[d], 0ll), std::max(most[d], 0ll));
    }
    if (!inside && outside == Outside::TRAP) outside_surface(m, f, at, writes);
    if (!inside && outside == Outside::ZERO) return nullptr;
    size_t slice = m.layers ? std::min((unsigned)std::max(f.layer, 0), m.layers - 1) : place[2];
    char* p = m.data + slice * m.slice + place[1] * m.pitch + place[0];
    touch_image((uintptr_t)p, bytes, writes, false, f.site);
    return p;
}
}  // namespace laptop
