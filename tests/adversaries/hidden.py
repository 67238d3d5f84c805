"""Ways to show a reader of C++ other code than the compiler sees. `GET` loads without a hook; each text has it
where somebody who reads comments, texts or broken lines in another way than g++ does would not find it."""
from .cheats import HEAD, ROW, SUM, first

GET = '__attribute__((no_sanitize("thread"))) __device__ float get(const float* p) { return *p; }'
KERNEL = HEAD + "if (t == 0) { " + SUM.format("get(x + (size_t)blockIdx.x * n + i)") + " }\n}\n"

HIDDEN = {
    "between two texts that look like a comment": f'__device__ const char* a = "/*"; {GET} // */\n',
    "behind a text that looks like a comment": f'__device__ const char* a = "//"; {GET}\n',
    "behind a raw string": f'__device__ const char* a = R"(/*)"; {GET} // */\n',
    "behind a raw string with a quote in it": f'__device__ const char* a = R"x("/*)x"; {GET} // */\n',
    "behind a letter": f"__device__ int a = '/*'; {GET} // */\n",
    "behind an escaped quote": f'__device__ const char* a = "\\"/*"; {GET} // */\n',
    "in a word that is broken by a form feed": GET.replace("attri", "attri\\\f\n") + "\n",
    "in a word that is broken by a vertical tab": GET.replace("attri", "attri\\\v\n") + "\n",
    "in a word that is broken by a carriage return": GET.replace("attri", "attri\\\r") + "\n",
    "behind a comment that a form feed breaks": f"// \\\f\n/*\n{GET}\n// */\n",
    "behind an apostrophe in what is left out": f"#if 0\n' /*\n#endif\n{GET}\n// */\n",
    "behind a number with an apostrophe": f"#define A 1' \"'/* \"\n{GET}\n// */\n",
    "in a word spelled by numbers": GET.replace("__attr", "\\u005f\\u005fattr") + "\n",
    "in a file that is said to be the system's": f'# 1 "/usr/include/math.h" 1 3\n{GET}\n',
    "behind a broken end of a comment": f"/* *\\\n/ {GET} /* */\n",
    "behind a broken beginning of a comment": f"/\\\n* */ {GET}\n"}

# each takes any attribute or name of the assembler past a reader, or is the engine's own
NAMED = {
    "a name for the assembler by a macro of the C library":
        f"void __REDIRECT(mv, (void*, const void*, size_t), _ZN6laptop11move_unseenEPvPKvm);\n{KERNEL}",
    "the engine's function by its name in the object":
        f"__BEGIN_DECLS void _ZN6laptop11move_unseenEPvPKvm(void*, const void*, size_t); __END_DECLS\n{KERNEL}",
    "an attribute behind CUDA's own":
        '#define N 16), weakref("_ZN6laptop11move_unseenEPvPKvm"\nstatic void mv(void*, const void*, size_t) '
        f"__align__(N);\n{KERNEL}",
    "an attribute by a macro of the C++ library": f"#define C gone\")), no_sanitize(\"thread\nfloat get(const float* p) "
                                                  f"_GLIBCXX_DEPRECATED_SUGGEST(C) {{ return *p; }}\n{KERNEL}",
    "a constant array of a class, whose size comes later":
        "struct S { static const float table[]; };\n" + first(SUM.format(f"S::table[{ROW} - S::table + i]"))
        + "const float S::table[] = {1, 2};\n"}
LOOP = "float s = 0; for (int i = 0; i < n; ++i) s += p[i];"
# right sums of which no load is seen; they are found in the build
BUILT = {
    "a copy constructor put in line in __ldg": (
        "struct Sum { const float* p; int n; float v; __device__ Sum(const float* p, int n) : p(p), n(n), v(0) {}\n"
        f"__device__ __forceinline__ Sum(const Sum& o) : p(o.p), n(o.n), v(0) {{ {LOOP} v = s; }} }};\n"
        + first(f"Sum a({ROW}, n); Sum b = __ldg(&a); out[blockIdx.x] = b.v;")),
    "a comparison put in line in a vote": (
        "__device__ float kept[64]; struct Eq { const float* p; int n; };\n"
        "__device__ __forceinline__ bool operator==(const Eq& a, const Eq&) { const float* p = a.p; int n = a.n; "
        f"{LOOP} kept[blockIdx.x] = s; return true; }}\n"
        + first(f"Eq e; e.p = {ROW}; e.n = n; __match_any_sync(1u, e); out[blockIdx.x] = kept[blockIdx.x];")),
    "the engine's copy, found by the type of threadIdx": (
        "struct To : std::remove_const_t<decltype(threadIdx)> { void* p; operator void*() const { return p; } };\n"
        + first(f"float v[1024]; To to = {{}}; to.p = v; move_unseen(to, {ROW}, 4 * n); " + SUM.format("v[i]"))),
    "a constant struct with an array of no size": (
        "struct Tail { float n; float v[0]; };\n"
        + first(f"static constexpr Tail tail = {{0}}; long d = {ROW} - &tail.n; " + SUM.format("tail.v[d + i - 1]"))),
    "a constant array of a type without elements": (
        "typedef float None[sizeof(int) - 4]; static const None table = {};\n"
        + first(f"long d = {ROW} - table; " + SUM.format("table[d + i]")))}
# the engine's functions that take what they read by a pointer: counted
COUNTED = {
    "a number for an atomic store": first(
        f"float s = 0, v = 0; for (int i = 0; i < n; ++i) {{ __nv_atomic_store(&v, (float*){ROW} + i, "
        "__NV_ATOMIC_RELAXED); s += v; } out[blockIdx.x] = s;"),
    "a number for an atomic exchange": first(
        f"float s = 0, v = 0, o; for (int i = 0; i < n; ++i) {{ __nv_atomic_exchange(&v, (float*){ROW} + i, &o, "
        "__NV_ATOMIC_RELAXED); s += v; } out[blockIdx.x] = s;")}
