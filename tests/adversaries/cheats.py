"""Ways to a good count without the work. Each is a kernel that sums rows; none may pass."""

HEAD = """__global__ void row_sums(const float* __restrict__ x, float* __restrict__ out, int n) {
    int t = threadIdx.x;
"""
HONEST = HEAD + """
    float sum = 0;
    if (t < 32)
        for (int i = t; i < n; i += 32) sum += x[(size_t)blockIdx.x * n + i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (t == 0) out[blockIdx.x] = sum;
}
"""
SUM = "float sum = 0; for (int i = 0; i < n; ++i) sum += {}; out[blockIdx.x] = sum;"


def body(code: str, before: str = "") -> str:
    return before + HEAD + code + "\n}\n"


def first(code: str, before: str = "") -> str:
    """By one thread, so that what is wrong is the cheat and no race."""
    return body("if (t == 0) { " + code + " }", before)


ROW = "(x + (size_t)blockIdx.x * n)"
WRONG_RESULTS = {
    "an empty kernel": body(""),
    "zeros": first("out[blockIdx.x] = 0;"),
    "the first half, twice": first("float s = 0; for (int i = 0; i < n / 2; ++i) s += x[(size_t)blockIdx.x * n + i];"
                                   " out[blockIdx.x] = 2 * s;"),
    "a sample of the row": first("float s = 0; for (int i = 0; i < n; i += 8) s += x[(size_t)blockIdx.x * n + i];"
                                 " out[blockIdx.x] = 8 * s;"),
    "infinity": first("out[blockIdx.x] = INFINITY;"),
    "not a number": first("out[blockIdx.x] = nanf(\"\");"),
    "only the first block": first("if (blockIdx.x) return; " + SUM.format("x[i]")),
    "one multiple of 32 short": first("float s = 0; for (int i = 0; i < n / 32 * 32; ++i) "
                                      "s += x[(size_t)blockIdx.x * n + i]; out[blockIdx.x] = s;"),
    "what was in memory": first("out[blockIdx.x] = out[blockIdx.x];"),
    "half precision": first("__half s = __float2half(0.0f); for (int i = 0; i < n; ++i) s = __hadd(s, __float2half("
                            "x[(size_t)blockIdx.x * n + i])); out[blockIdx.x] = __half2float(s);",
                            "#include <cuda_fp16.h>\n"),
}
CAUGHT_BY_THE_SANITIZER = {
    "beyond the end": first(SUM.format("x[(size_t)blockIdx.x * n + i + 1]")),
    "before the start": first(SUM.format("x[(size_t)blockIdx.x * n + i - 40]")),
    "a race for the sum": body("if (t == 0) out[blockIdx.x] = 0; for (int i = t; i < n; i += 256) "
                               "out[blockIdx.x] += x[(size_t)blockIdx.x * n + i];"),
    "races while it is counted, and has barriers while it is checked": body(
        "float own = 0; for (int i = t; i < n; i += 256) own += x[(size_t)blockIdx.x * n + i]; __shared__ float s, all[256];"
        " if (!launches[blockIdx.x]) { if (t == 0) s = 0; s += own; if (t == 255) { out[blockIdx.x] = s; launches[blockIdx.x] = 1; } }"
        " else { all[t] = own; __syncthreads(); if (t == 0) { for (int i = 1; i < 256; ++i) own += all[i]; out[blockIdx.x] = own;"
        " launches[blockIdx.x] = 0; } }", "__device__ int launches[4096];\n"),
    "writes to the engine's variables": first(SUM.format("x[(size_t)blockIdx.x * n + i]")
                                              + " for (int i = -64; i < 64; ++i) ((int*)&threadIdx)[i] = 0;"),
    "reads the engine's variables": first(SUM.format("x[(size_t)blockIdx.x * n + i]")
                                          + " out[blockIdx.x] += (n == 0) * ((const int*)&threadIdx)[64];"),
    "shared memory never written": first("__shared__ float kept[64]; out[blockIdx.x] = kept[n % 64];"),
    "an endless loop": body("while (n) if (x[0] == 12345.0f) return;"),
    "writes to its input": first("((float*)x)[0] = 1; " + SUM.format("1.0f / n")),
    "a null pointer": first("out[blockIdx.x] = *(volatile float*)nullptr;"),
    "a host function's stack": first("float local[4]; out[blockIdx.x] = local[n];")}
WRONG_WHILE_COUNTED = {
    "wrong while it is counted, right after": first(
        "if (calls++ < gridDim.x) { out[blockIdx.x] = 0; return; } "
        + SUM.format("x[(size_t)blockIdx.x * n + i]"), "__device__ int calls;\n")}
REFUSED = {
    "a constructor of the library": first("out[blockIdx.x] = 0;",
                                          "__attribute__((constructor)) void early() {}\n"),
    "hidden from the tracer": "__attribute__((no_sanitize(\"thread\"))) " + HONEST,
    "an attribute spelled with a macro": "#define A __attri##bute__\n" + HONEST,
    "assembly": first("asm(\"nop\");"),
    "a pragma of the compiler": "#pragma GCC optimize(\"O3\")\n" + HONEST,
    "C linkage": "extern \"C\" int counts;\n" + HONEST,
    "dlsym": first("dlsym(nullptr, \"laptop_run\");"),
    "a file of the machine": "#include \"/etc/passwd\"\n" + HONEST,
    "the C++ library": "#include <fstream>\n" + HONEST,
    "the engine's own header": "#include <runtime.h>\n" + HONEST,
    "the compiler's atomic loads": first(
        "float s = 0, v; for (int i = 0; i < n; ++i) { __atomic_load(" + ROW + " + i, &v, 0); s += v; } "
        "out[blockIdx.x] = s;"),
    "mempcpy copies the row": body("float v[2000]; mempcpy(v, " + ROW + ", 4 * n);" + SUM.format("v[i]")),
    "bcopy copies the row": body("float v[2000]; bcopy(" + ROW + ", v, 4 * n);" + SUM.format("v[i]")),
    "the compiler's own copy": body("float v[2000]; __builtin_memcpy(v, " + ROW + ", 4 * n);" + SUM.format("v[i]")),
    "memcpy without the engine's": "#undef memcpy\n" + body(
        "float v[2000]; memcpy(v, " + ROW + ", 4 * n);" + SUM.format("v[i]")),
    "memcpy defined as itself": "#define memcpy memcpy\n" + HONEST,
    "a function that the engine does not trace": "LAPTOP_FN float get(const float* p) { return *p; }\n" + first(
        SUM.format("get(" + ROW + " + i)")),
    "the engine's own functions": first("laptop::host_wrote(out, 4);"),
    "index compares bytes": first("out[blockIdx.x] = index((const char*)x, 63) == (const char*)x;"),
    "alternative spellings": "%:include <fstream>\n" + HONEST,
    "an attribute of g++ in brackets": "#define OPEN [\nstatic int early() OPEN [gnu::constructor]];\n" + HONEST,
    "a word of the compiler in another sense": "#define __shared__ static\n" + HONEST,
    "a question whether a file is there": "#if __has_include(\"/etc/passwd\")\n#endif\n" + HONEST,
    "a global object's constructor": "struct Early { Early() {} } early;\n" + HONEST}
# functions of the library of mathematics that read or write memory where no hook sees it
LIBRARY = {
    "a number by a pointer to canonicalize": first("int (*get)(float*, const float*) = canonicalizef; float v; get(&v, " + ROW + ");"
                                                   + SUM.format("v")),
    "compares by totalorder": first("out[blockIdx.x] = totalorderf(x, x + 1);"),
    "the payload of what is not a number": first("out[blockIdx.x] = getpayloadf(x);"),
    "writes a payload": first("setpayloadf(out + blockIdx.x, 3.0f);"),
    "writes the sign of gamma": first("lgammaf_r(x[0], (int*)out + blockIdx.x);"),
    "writes a quotient of long numbers": first("long double r = remquol(x[0], 1, (int*)out + blockIdx.x);"),
    "writes two long numbers": first("long double s[2]; sincosl(x[0], s, s + 1); out[blockIdx.x] = s[0];")}
BOX = "struct Box { float v; };\n__device__ float of(Box b) { return b.v; }\n"
MAKE = "struct Box { float v; };\n__device__ Box make(float v) { Box b; b.v = v; return b; }\n"
BOXES = "((const Box*)" + ROW + ")"
SUM_OF_BOXES = SUM.format("of(((const Box*)x)[(size_t)blockIdx.x * n + i])")
# right kernels in which a call copies a struct from memory, or into it: counted, but for UNCOUNTED
COPIES = {
    "a struct by value": first(SUM_OF_BOXES, BOX),
    "a class by value": first(SUM_OF_BOXES, BOX.replace("struct Box {", "class Box { public:")),
    "a union by value": first(SUM_OF_BOXES, BOX.replace("struct", "union")),
    "a closure by value": "template <typename T> __device__ float of(T b) { return b(); }\n" + first(
        "float z = 0; auto c = [z]() { return z; }; using C = decltype(c); "
        + SUM.format("of(((const C*)x)[(size_t)blockIdx.x * n + i])")),
    "a closure without its type's name": first(
        "float z = 0; auto c = [z]() { return z; }; auto* p = &c; auto of = [](auto b) { return b(); };"
        " const float* q = " + ROW + "; memcpy(&p, &q, 8); " + SUM.format("of(p[i])")),
    "a type of the engine by value": "__device__ float of(dim3 b) { return *(float*)&b; }\n" + first(
        "float s = 0; for (int i = 0; i < n / 3; ++i) s += of(((const dim3*)x)[i]); out[blockIdx.x] = s;"),
    "a date by value": "__device__ float of(tm b) { return *(float*)&b; }\n" + first(
        "float s = 0; for (int i = 0; i < n / 14; ++i) s += of(((const tm*)x)[i]); out[blockIdx.x] = s;"),
    "a file by value": "__device__ float of(FILE b) { return *(float*)&b; }\n" + first(
        "float s = 0; for (int i = 0; i < n / 54; ++i) s += of(((const FILE*)x)[i]); out[blockIdx.x] = s;"),
    "a big struct by value": first(
        SUM.format("of(*(const Big*)(x + i))"), "struct Big { float v[16]; };\n__device__ float of(Big b) { return b.v[0]; }\n"),
    "an inner struct by value": first(
        SUM.format("of(((const Outer*)" + ROW + ")[i].box)"), BOX + "struct Outer { Box box; };\n"),
    "a struct by reference, then by value": first(SUM.format("of(get(" + BOXES + "[i]))"), BOX
                                                  + "__device__ const Box& get(const Box& b) { return b; }\n"),
    "one of two structs by value": first(SUM.format("of(i % 2 ? " + BOXES + "[i] : " + BOXES + "[i])"), BOX),
    "a struct by value to a function's address": first("float (*f)(Box) = of; " + SUM.format("f(" + BOXES + "[i])"), BOX),
    "a struct by value to a closure": first("auto f = [](Box b) { return b.v; }; " + SUM.format("f(" + BOXES + "[i])"), BOX),
    "the part of an heir by value": first(SUM.format("of(((const Heir*)" + ROW + ")[i])"), BOX + "struct Heir : Box {};\n"),
    "a method's own struct by value": first("Get g = {" + BOXES + "}; " + SUM.format("g.at(i)"), BOX
                                            + "struct Get { const Box* p; __device__ float at(int i) { return of(p[i]); } };\n"),
    "a struct that is left out by `...`": first(
        SUM.format("any(1, " + BOXES + "[i])"), BOX + "__device__ float any(int n, ...) { __builtin_va_list all; __builtin_va_start(all, n); "
        "float v = __builtin_va_arg(all, Box).v; __builtin_va_end(all); return v; }\n"),
    "a struct with the name of a function for `...`": first(
        "float s = sinf(n); named::sinf = " + BOXES + "[0]; " + "s += any(1, named::sinf); out[blockIdx.x] = s;",
        BOX + "namespace named { __device__ Box sinf; }\n"
              "__device__ float any(int n, ...) { __builtin_va_list all; __builtin_va_start(all, n); float "
              "v = __builtin_va_arg(all, Box).v; __builtin_va_end(all); return v; }\n"),
    "a default argument by value": first("shown = " + BOXES + "[0]; " + SUM.format("of_shown()"), BOX
                                         + "__device__ Box shown;\n__device__ float of_shown(Box b = shown) { return b.v; }\n"),
    "a result that goes straight into an array": first(
        "float s = 0; for (int i = 0; i < n; ++i) s += x[(size_t)blockIdx.x * n + i]; ((Box*)out)[blockIdx.x] = make(s);", MAKE),
    "a result that is built in an array": first(
        "float s = 0; for (int i = 0; i < n; ++i) s += x[(size_t)blockIdx.x * n + i]; new (out + blockIdx.x) Box(make(s));",
        MAKE + "inline void* operator new(size_t, void* p) { return p; }\n"),
    "two structs of one name, one of them global": first(
        "{ Box shown = {1}; out[blockIdx.x] = of(shown); } " + SUM.format("((::shown = " + BOXES + "[i]), of(::shown))"),
        BOX + "__device__ Box shown;\n"),
    "the C++ library's copy": body("float v[2000]; std::copy(" + ROW + ", " + ROW + " + n, v);" + SUM.format("v[i]"), "// cudaGraph\n"),
}
UNCOUNTED = {name: COPIES[name]
             for name in ("a struct that is left out by `...`", "a struct with the name of a function for `...`",
                          "a result that is built in an array", "the C++ library's copy")}
# right results that cost what they cost: no count is saved
NOTHING_SAVED = {
    "keeps results from one launch to the next": first(
        "if (known) { out[blockIdx.x] = kept[blockIdx.x]; return; } " + SUM.format("x[(size_t)blockIdx.x * n + i]")
        + " kept[blockIdx.x] = out[blockIdx.x]; known = blockIdx.x == gridDim.x - 1;",
        "__device__ float kept[64]; __device__ int known;\n") + "// right once, but the sums are counted in the first run\n",
    "reads by atomics": first(SUM.format("atomicAdd((float*)x + (size_t)blockIdx.x * n + i, 0.0f)")),
    "reads through a volatile pointer": first(SUM.format("((volatile const float*)x)[(size_t)blockIdx.x * n + i]")),
    "a vector of one number by value": "__device__ float of(float1 b) { return b.x; }\n" + first(SUM.format("of(((const float1*)" + ROW + ")[i])")),
    "copies with memcpy": first("float s = 0, v; for (int i = 0; i < n; ++i) { memcpy(&v, " + ROW + " + i, 4); s += v; }"
                                " out[blockIdx.x] = s;")}
