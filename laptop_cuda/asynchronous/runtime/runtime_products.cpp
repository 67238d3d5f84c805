// wgmma: products of a warpgroup, ready for each of its threads when that has waited for them.
//
// A product is made as late as is legal, when the first thread waits for its group, of what is in shared memory then; with
// the threads in reverse as soon as all have issued it. Until a thread's own wait its sums hold poison in a checked launch.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <deque>

#include "runtime_asynchronous.h"
#include "soft_float.h"

namespace laptop {

constexpr uint32_t GROUP = 128, ROWS = 64;
constexpr uint32_t WIDTHS[] = {0, 128, 64, 32};          // bytes of a swizzle, by a descriptor's last two bits

struct Tile {                    // where a thread has its sums, and what they are when its wait is over
    std::vector<uint32_t*> at;
    std::vector<uint32_t> is;
    uint32_t products = 0;       // that add to it and were not waited for
    uint32_t fences = 0;         // of its thread, when it got them last
    const void* site = nullptr;  // of the last of them
};
struct Product {
    Form form;
    Factor a, b;
    uint32_t registers[GROUP][4];
    const void* places[GROUP][4];
    uint32_t tile[GROUP];        // of each thread
    uint32_t group[GROUP];
    bool adds[GROUP];
    uint32_t issued = 0;
    bool late, made = false;
    const void *name, *site;
};
struct Issuing {                 // a thread of the group
    uint32_t issued = 0, waited = 0, group = 0, fences = 0, settings = 0;
    std::vector<Tile> tiles;
};
struct Setting {                 // of registers, by setmaxnreg
    uint32_t to, more, came;
    const void* site;
    bool of_warp[4];
};
struct Warpgroup {
    std::deque<Product> products;
    std::deque<Setting> settings;
    int64_t registers[5] = {};       // of a thread in each warp, beyond those of the launch; of the block's first: all that are free
    uint32_t gone = 0;           // from the front
    Issuing threads[GROUP];
};

static Warpgroup& mine() {
    Busy busy;
    auto& all = warpgroups_of(here());
    if (!all) all = std::make_shared<std::vector<Warpgroup>>((run->n_threads + GROUP - 1) / GROUP);
    return (*all)[current->index / GROUP];
}

[[noreturn]] static void misused(const char* kind, const char* reason, const void* site, const void* other = nullptr) {
    laptop_error e = make_error(kind, reason, site, 5);
    if (other) e.other = party(current, code_offset(other), 5), e.has_other = 1;
    fail(e);
}

static double decoded(uint32_t bits, int exponent, int mantissa, bool has_infinity) {
    int top = (1 << exponent) - 1, e = bits >> mantissa & top;
    uint32_t m = bits & ((1u << mantissa) - 1);
    double v = ldexp(e ? m + (1 << mantissa) : m, std::max(e, 1) - (top >> 1) - mantissa);
    if (e == top && has_infinity) v = m ? NAN : INFINITY;
    if (e == top && !has_infinity && m == (1u << mantissa) - 1) v = NAN;
    return bits >> (exponent + mantissa) & 1 ? -v : v;
}
static uint32_t bytes_of(char type) { return type == 't' ? 4 : type == 'h' || type == 'b' ? 2 : 1; }
static double element(char type, const void* p) {
    uint32_t bits = 0;
    memcpy(&bits, p, bytes_of(type));
    switch (type) {
        case 'h': return decoded(bits, 5, 10, true);
        case 'b': return decoded(bits, 8, 7, true);
        case 't': return decoded(bits >> 13, 8, 10, true);
        case '4': return decoded(bits, 4, 3, false);
        case '5': return decoded(bits, 5, 2, true);
        case 's': return (int8_t)bits;
        default: return (uint8_t)bits;
    }
}

// Which address a descriptor means by its 18 bits: arrays lie further apart here than on a card.
static uint32_t whole_address(uint32_t low) {
    for (const SharedArray& array : run->shared) {
        uint32_t further = (array.position + array.bytes - 1 - low) >> 18 << 18;
        if (low < array.position + array.bytes && low + further >= array.position) return low + further;
    }
    return low;
}

// A factor in shared memory, as its descriptor lays it out: groups of 8 rows, `width` bytes wide (16: none is swizzled).
struct Layout {
    uint32_t start, leading, stride, swizzle, width, itemsize, base;     // base: where patterns begin, beside multiples of 1,024
    bool by_columns;

    Layout(const Factor& f, char type) {
        auto field = [&](int low) { return uint32_t(f.descriptor >> low & 0x3fff) << 4; };
        start = whole_address(field(0)), leading = field(16), stride = field(32), swizzle = WIDTHS[f.descriptor >> 62];
        width = swizzle ? swizzle : 16, itemsize = bytes_of(type), by_columns = f.by_columns, base = (f.descriptor >> 49 & 7) << 7;
    }
    // Where element (row along m or n, k) is. The address that is swizzled is the whole one, the start's low bits included.
    uint32_t at(uint32_t row, uint32_t k) const {
        uint32_t byte = (by_columns ? row : k) * itemsize, line = by_columns ? k : row, from = start;
        uint32_t across = by_columns == !swizzle ? stride : leading, down = by_columns && !swizzle ? leading : stride;
        if (swizzle && !by_columns) from += byte, byte = 0;      // the leading distance is not used
        return swizzled(from + byte / width * across + byte % width + line / 8 * down + line % 8 * width - base, swizzle) + base;
    }
};

static std::vector<double> read(const Factor& f, char type, uint32_t rows) {
    uint32_t depth = 32 / bytes_of(type);
    std::vector<double> found(rows * depth);
    Layout layout(f, type);
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t k = 0; k < depth; ++k)
            found[row * depth + k] = (f.negated ? -1 : 1) * element(type, shared_pointer(layout.at(row, k)));
    return found;
}

static std::vector<double> read_registers(const Product& p) {
    uint32_t each = 4 / bytes_of(p.form.a), depth = 8 * each;
    std::vector<double> found(ROWS * depth);
    for (uint32_t t = 0; t < GROUP; ++t)
        for (uint32_t i = 0; i < 4 * each; ++i) {
            uint32_t r = i / each, row = t / 32 * 16 + t % 32 / 4 + 8 * (r % 2);
            uint32_t k = t % 4 * each + r / 2 * 4 * each + i % each;
            double v = element(p.form.a, (const char*)&p.registers[t][r] + i % each * bytes_of(p.form.a));
            found[row * depth + k] = p.a.negated ? -v : v;
        }
    return found;
}

static void add(const Form& form, uint32_t& sum, int half, bool adds, double dot) {
    if (form.d == 's') {
        double whole = dot + (adds ? (int32_t)sum : 0);
        if (form.saturates) whole = std::min(std::max(whole, -2147483648.0), 2147483647.0);
        sum = (uint32_t)(int64_t)whole;
    } else if (form.d == 'h') {
        uint16_t made = narrow<binary16>(dot + (adds ? binary16::widen(uint16_t(sum >> 16 * half)) : 0));
        memcpy((char*)&sum + 2 * half, &made, 2);
    } else {
        sum = bits_of(float(dot + (adds ? float_of(sum) : 0)));
    }
}

static void make(Warpgroup& g, Product& p) {
    if (p.made) return;
    p.made = true;
    std::vector<double> a = p.a.registers ? read_registers(p) : read(p.a, p.form.a, ROWS), b = read(p.b, p.form.b, p.form.n);
    uint32_t depth = a.size() / ROWS, halves = p.form.d == 'h' ? 2 : 1;
    for (uint32_t t = 0; t < GROUP; ++t) {
        std::vector<uint32_t>& is = g.threads[t].tiles[p.tile[t]].is;
        for (uint32_t i = 0; i < p.form.n / 2u; ++i) {
            const double* row = &a[(t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2)) * depth];
            const double* column = &b[(i / 4 * 8 + t % 4 * 2 + i % 2) * depth];
            double dot = 0;
            for (uint32_t k = 0; k < depth; ++k) dot += row[k] * column[k];
            add(p.form, is[i / halves], i % 2, p.adds[t], dot);
        }
    }
    no_longer_in_flight(here(), p.name, false);
}

// A factor whose descriptor has another swizzle than the tensor copy that wrote it: what either means, line by line.
static void check_swizzle(const Layout& layout, uintptr_t address, const char* name, const void* site) {
    const Written* tile = written_at(address);
    if (!tile || (tile->swizzle == layout.swizzle && (!tile->swizzle || tile->atom == 16))) return;
    static char text[1024];
    int n = snprintf(text, sizeof text, "gives wgmma.mma_async %s a swizzle of %u bytes, and the tile was written by a tensor copy with one of %u%s (PTX, "
                     "wgmma, matrix descriptor).\n    Pieces of 16 bytes, by lines of 128, as written and as they are read:", name, layout.swizzle,
                     tile->swizzle, tile->atom == 16 ? "" : " that moves more than 16 together");
    for (uint32_t line = 0; line < 8; ++line) {
        for (unsigned side = 0; side < 2; ++side) {
            n += snprintf(text + n, sizeof text - n, side ? "   | " : "\n    ");
            for (uint32_t piece = 0; piece < 8; ++piece) {
                uint32_t at = side ? swizzled(128 * line + 16 * piece, layout.swizzle) : swizzled(128 * line + 16 * piece, tile->swizzle, tile->atom & ~1u);
                n += snprintf(text + n, sizeof text - n, " %u", at / 16 % 8);
            }
        }
    }
    breaks_rule("bad descriptor", text, site);
}

// Its thread reads the rows of its own warp and all columns, of memory that nobody may write before the product is made.
static void check_factor(const Product& p, const Factor& f, const char* name, char type, uint32_t rows, uint32_t first) {
    if (f.registers) return;
    Layout layout(f, type);
    auto& in_flight = here().in_flight;
    uint32_t depth = 32 / bytes_of(type), piece = 16 / bytes_of(type);
    uint32_t lines = f.by_columns ? depth : rows, across = (f.by_columns ? rows : depth) / piece;
    std::vector<uint32_t> pieces;
    for (uint32_t line = 0; line < lines; ++line)
        for (uint32_t n = 0; n < across; ++n)
            pieces.push_back(f.by_columns ? layout.at(first + n * piece, line) : layout.at(first + line, n * piece));
    std::sort(pieces.begin(), pieces.end());
    for (size_t i = 0, end; i < pieces.size(); i = end) {        // stretches of them
        for (end = i + 1; end < pieces.size() && pieces[end] <= pieces[end - 1] + 16; ++end) {}
        uintptr_t address = (uintptr_t)shared_pointer(pieces[i]);
        uint32_t bytes = pieces[end - 1] + 16 - pieces[i];
        check_in_flight(in_flight, address, bytes, 0, p.site);
        if (!found_quickly(current, address, bytes).region) check_range(address, bytes, 0, p.site);
        check_swizzle(layout, address, name, p.site);
        must_be_fenced(address, bytes, 0, true, p.site);
        in_flight.push_back({address, bytes, current->index, 0, code_offset(p.site), p.name, "from product", true, 1, 0, &here()});
    }
}

static uint32_t tile_of(Issuing& me, const Form& form, uint32_t* const* sums, bool adds, const void* site) {
    uint32_t count = form.n / (form.d == 'h' ? 4 : 2), found = 0;
    while (found < me.tiles.size() && (me.tiles[found].at.size() != count || me.tiles[found].at[0] != sums[0])) ++found;
    bool known = found < me.tiles.size();
    if (!known) me.tiles.push_back({{sums, sums + count}, std::vector<uint32_t>(count), 0});
    Tile& t = me.tiles[found];
    t.site = site;
    if (!t.products++) {
        bool untouched = known;
        for (uint32_t i = 0; i < count; ++i) {
            untouched = untouched && *sums[i] == t.is[i];
            t.is[i] = *sums[i];
        }
        bool fenced = me.fences != t.fences && (!known || !adds);        // with the sums that are read
        if (is_checked() && !untouched && !fenced) misused("race", "no fence", site);
        for (uint32_t i = 0; is_checked() && i < count; ++i) memset(sums[i], run->poison, 4);
        current->owes = is_checked();
    }
    return found;
}

static void check_descriptor(const Factor& f, const char* name, const void* site) {
    if (f.registers || !run->traced) return;
    uint32_t width = WIDTHS[f.descriptor >> 62], lines = width / 16, base = f.descriptor >> 49 & 7;
    uint32_t past = ((f.descriptor >> 3) - base) & (lines - !!lines);
    bool stray = f.descriptor & 0x3ff1c000c0000000;
    if (!stray && !past) return;         // no string before: one of C++20 has hooks of the program's
    std::string wrong = std::string("gives wgmma.mma_async ") + name;
    if (stray) wrong += " with a bit outside of its fields (30-31, 46-48 or 52-61)";
    else wrong += " whose start address is " + std::to_string(past * 128 % (8 * width)) + " bytes into a pattern of " +
                  std::to_string(8 * width) + " bytes, with a base offset of " + std::to_string(base);
    breaks_rule("bad descriptor", (wrong + " (PTX, wgmma, matrix descriptor).").c_str(), site);
}

void product(const Form& form, uint32_t* const* sums, Factor a, Factor b, bool adds, const void* site) {
    if (!current) return;
    Warpgroup& g = mine();
    Busy busy;
    uint32_t t = current->index % GROUP;
    Issuing& me = g.threads[t];
    if (current->index / GROUP * GROUP + GROUP > run->n_threads) misused("barrier divergence", "no whole warpgroup", site);
    uint32_t place = me.issued++ - g.gone;
    if (place == g.products.size()) {
        g.products.push_back({});
        Product& made = g.products.back();
        made.form = form, made.a = a, made.b = b, made.site = site, made.late = !is_checked() || is_late();
        made.name = new_name();
        check_descriptor(a, "a-desc", site), check_descriptor(b, "b-desc", site);
    }
    Product& p = g.products[place];
    if (memcmp(&p.form, &form, sizeof form)) misused("barrier divergence", "not one product", site);
    if (p.a.descriptor != a.descriptor || p.b.descriptor != b.descriptor) misused("bad descriptor", "not one descriptor", site);
    if (a.registers) memcpy(p.registers[t], a.registers, sizeof p.registers[t]);
    for (int i = 0; a.registers && i < 4; ++i) {         // those of a helper's own frame end with it
        bool stays = current->depth <= KERNEL_DEPTH || a.places[i] > a.frame;
        p.places[t][i] = stays ? a.places[i] : nullptr;
    }
    p.tile[t] = tile_of(me, form, sums, adds, site), p.group[t] = me.group, p.adds[t] = adds;
    note(here(), current->index, LAPTOP_PRODUCT_ISSUED, nullptr, me.group, site, p.name);
    if (is_checked() && t % 32 == 0) {
        unsettle();
        check_factor(p, a, "a-desc", form.a, ROWS / 4, t / 32 * 16);
        check_factor(p, b, "b-desc", form.b, form.n, 0);
    }
    if (++p.issued < GROUP) return;
    // One row of a factor is 32 bytes. A card reads each once for the warpgroup.
    count_product(2ull * ROWS * form.n * (32 / bytes_of(form.a)), site, 32ull * (form.n + (a.registers ? 0 : ROWS)));
    if (!p.late && (!place || g.products[place - 1].made)) make(g, p);
    wake_all_at(here(), &g);
}

void product_fence() {
    if (!current) return;
    Issuing& me = mine().threads[current->index % GROUP];
    ++me.fences;
    for (Tile& t : me.tiles)             // what is changed after it is not fenced
        for (size_t i = 0; !t.products && i < t.at.size(); ++i) t.is[i] = *t.at[i];
}

void product_commit() { if (current) ++mine().threads[current->index % GROUP].group; }

void product_wait(uint32_t left, const void* site) {
    if (!current) return;
    Warpgroup& g = mine();
    uint32_t t = current->index % GROUP;
    Issuing& me = g.threads[t];
    for (; me.waited < me.issued; ++me.waited) {
        auto next = [&]() -> Product& { return g.products[me.waited - g.gone]; };
        if (next().group[t] + left >= me.group) break;
        while (next().issued < GROUP) await_phase(&g, site);
        if (is_checked() && next().late && !next().made) await_the_others(site);     // as late as is legal
        Busy busy;
        make(g, next());
        Tile& tile = me.tiles[next().tile[t]];
        if (--tile.products) continue;
        tile.fences = me.fences;
        for (size_t i = 0; i < tile.at.size(); ++i) *tile.at[i] = tile.is[i];
    }
    note(here(), current->index, LAPTOP_PRODUCTS_WAITED, nullptr, me.group, site);
    current->owes = is_checked() && std::any_of(me.tiles.begin(), me.tiles.end(), [](Tile& t) { return t.products; });
    auto all_waited = [&] {
        return std::all_of(g.threads, g.threads + GROUP, [&](const Issuing& i) { return i.waited > g.gone; });
    };
    Busy busy;
    for (; !g.products.empty() && all_waited(); ++g.gone) g.products.pop_front();
}

static void touched_own(uintptr_t address, int action, const void* pc) {
    const Warpgroup& g = mine();
    const Issuing& me = g.threads[current->index % GROUP];
    for (uint32_t n = me.waited; action && n < me.issued; ++n) {
        auto& at = g.products[n - g.gone].places[current->index % GROUP];
        if (std::find(at, at + 4, (const void*)address) < at + 4) misused("race", "register written", pc, g.products[n - g.gone].site);
    }
    for (const Tile& t : me.tiles) {
        bool is_sum = t.products && std::find(t.at.begin(), t.at.end(), (uint32_t*)address) != t.at.end();
        if (is_sum) misused("race", action ? "sums written" : "sums read", pc, t.site);
    }
}

// Of a block, whose threads begin with what __launch_bounds__ leaves them: without these nothing need happen.
void set_registers(uint32_t to, bool more, const void* site) {
    if (!current) return;
    if (to % 8 || to < 24 || to > 256) trap("setmaxnreg to a count that is not 24 to 256 in steps of 8,", site);
    if (run->launch->max_threads <= 0 || !is_checked()) return;          // no count depends on who waits here
    Warpgroup& g = mine();
    int64_t &held = g.registers[current->index % GROUP / 32], &free = (*warpgroups_of(here()))[0].registers[4];
    uint32_t n = g.threads[current->index % GROUP].settings++;
    if (n == g.settings.size()) g.settings.push_back({to, more, 0, site, {}});
    Setting& s = g.settings[n];
    if (s.to != to || s.more != more) misused("barrier divergence", "not one setmaxnreg", site, s.site);
    ++s.came;
    bool& done = s.of_warp[current->index % GROUP / 32];
    int64_t needs = to - held - std::min(65536u / run->launch->max_threads / 8 * 8, 256u);
    if (!done && (more ? needs < 0 : needs > 0)) trap("setmaxnreg.inc to fewer registers than there are, or .dec to more,", site);
    for (; !done && 32 * needs > free; await_phase(&free, site)) {}
    if (done) return;
    done = true, held += needs, free -= 32 * needs;
    wake_all_at(here(), &free);
}

std::string registers_of(Block& b, bool at_its_end) {
    auto& all = warpgroups_of(b);
    for (const Thread& t : b.threads) {
        const Warpgroup* g = all ? &(*all)[t.index / GROUP] : nullptr;
        for (size_t i = 0; g && at_its_end && i < g->settings.size(); ++i)
            if (g->settings[i].came != GROUP) fail(error_of("barrier divergence", "setmaxnreg by a part", &t, code_offset(g->settings[i].site)));
        int64_t* free = all ? &(*all)[0].registers[4] : nullptr;
        if (free && t.state == State::PHASE && t.awaited == free) return "registers " + std::to_string(*free);
    }
    return "";
}

static const bool looks = (seams.touched_own = touched_own, true);
}  // namespace laptop

// What clang tells beside its hooks, which leave out elements of a thread's own arrays.
#define LAPTOP_OWN(name, bytes, action)                                                                             \
    extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_##name##bytes(void* p) {                 \
        laptop::Thread* t = laptop::current;                                                                        \
        if (t && t->owes && laptop::is_local(p)) laptop::seams.touched_own((uintptr_t)p, action, LAPTOP_SITE);      \
    }
#define LAPTOP_OWN_BOTH(bytes) LAPTOP_OWN(load, bytes, 0) LAPTOP_OWN(store, bytes, 1)
LAPTOP_OWN_BOTH(1) LAPTOP_OWN_BOTH(2) LAPTOP_OWN_BOTH(4) LAPTOP_OWN_BOTH(8) LAPTOP_OWN_BOTH(16)
