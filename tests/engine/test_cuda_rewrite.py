"""The rewriter: launches and shared declarations change, nothing else does, and no line moves."""
import re

import pytest

from laptop_cuda.rewrite import rewrite
from laptop_cuda.text.signature import kernels
from laptop_cuda.rewrite.table import constants, symbols
from laptop_cuda.text.outline import outline
from laptop_cuda.text.tokens import scan


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def in_kernel(body: str) -> str:
    """The rewritten body of a kernel that holds `body`."""
    text = rewrite("__global__ void k(int n) {" + body + "}")
    return flat(text.removeprefix("__global__ void k(int n) {").removesuffix("}"))


UNTOUCHED = [
    "int main() { return 1 << 3 >> 1; }",
    "// k<<<1, 2>>>(x); __shared__ float t[3];\n/* __shared__ int a; k<<<1,1>>>(); */\n",
    'const char* s = "__shared__ float t[2]; k<<<1, 2>>>(x)";',
    'const char* s = R"x(k<<<1, 2>>>(x) " __shared__ )x"; char c = \'"\';',
    "std::vector<std::vector<std::vector<int>>> deep; int big = 1'000'000;",
    "#define TEXT \"__shared__ float x;\"\n#if 0\ndon't \" unbalanced {{{\n#endif\nint x;", "#define WAIT(p) while (*(volatile int*)p)\n",
    "template <class A, int N = (4 > 3)> struct pair_of { A a[N]; };",
    "long host() { return clock(); } __device__ long f(Watch w) { return w.clock() + std::clock(); }",
    "struct Watch { __device__ long clock() { return t; } __device__ long read() { return clock(); } };"]


@pytest.mark.parametrize("body, wanted", [
    ("while (true) ;", "while (true) laptop::turn();"), ("while (n) { }", "while (n) { laptop::turn();}"),
    ("for (;;) {}", "for (;;) {laptop::turn();}"),
    ("do ; while (n);", "do laptop::turn(); while (n);"), ("do { } while (n);", "do { laptop::turn();} while (n);"),
    ("do if (n) { --n; } else n = 0; while (n);", None),
    ("do { --n; } while (n); while (n) ;", "do { --n; } while (n); while (n) laptop::turn();"),
    ("for (int i = 0; i < n; ++i) { f(i); }", None), ("while (n) --n;", None),
    ("do for (;;) ; while (n);", "do for (;;) laptop::turn(); while (n);"),
    ("volatile int* f = p; while (*f) { --n; }", "volatile int* f = p; while (*f) LAPTOP_MAY_WAIT(false) { --n; }"),
    ("for (; *(volatile int*)p;) --n;", "for (; *(volatile int*)p;) LAPTOP_MAY_WAIT(false) --n;"),
    ("do { n = (volatile int&)g; } while (n);", "do LAPTOP_MAY_WAIT(false) { n = (volatile int&)g; } while (n);"),
    ("volatile int v; for (int i = 0; i < n; ++i) { v = i; }", None),
    ('while (n) { asm volatile(""); --n; }', "while (n) { (void)0; --n; }")])
def test_a_loop_without_a_body_gets_one(body, wanted):
    assert in_kernel(body) == (wanted or body)
    assert rewrite(f"#define SPIN {body}") == f"#define SPIN {wanted or body}"


@pytest.mark.parametrize("source", UNTOUCHED)
def test_what_is_no_launch_and_no_shared_declaration_stays(source):
    assert rewrite(source) == source


def launch(source: str) -> str:
    return flat(rewrite("void host() { " + source + " }").removeprefix("void host() { ").removesuffix(" }"))


LAUNCHES = [
    ("k<<<1, 32>>>(x, n);", "k", "1, 32", ", x, n"), ("k<<<1, 32>>>();", "k", "1, 32", ""),
    ("k<float, 32><<<dim3(2, 2), n >> 1, 4 * sizeof(float), stream>>>(x);", "k<float, 32>",
     "dim3(2, 2), n >> 1, 4 * sizeof(float), stream", ", x"),
    ("a::b::k<T, (N > 3)><<<g, b>>>(p->x, y[2]);", "a::b::k<T, (N > 3)>", "g, b", ", p->x, y[2]"),
    ("table[i]<<<g, b>>>(x);", "table[i]", "g, b", ", x"),
    ("self.kernel<<<g, b>>>(x);", "self.kernel", "g, b", ", x"),
    ("(choose(n))<<<g, b>>>(x);", "(choose(n))", "g, b", ", x"),
    ("k<<<div<int>(n, 3), b>>>(x, NULL);", "k", "div<int>(n, 3), b", ", x, nullptr"),
    ("k < 32 ><<<g, b>>>(x);", "k < 32 >", "g, b", ", x")]


@pytest.mark.parametrize("source, callee, configuration, arguments", LAUNCHES)
def test_launches(source, callee, configuration, arguments):
    assert launch(source) == (f'laptop::host_launch("{callee}", __LINE__, [&](auto... laptop_args) {{ {callee}('
                              f"laptop_args...); }}, laptop::launch_config({configuration}){arguments});")


def test_a_launch_over_several_lines_keeps_them():
    source = "void f() {\n  k<32,\n    4>\n   <<<g, // the grid\n      b>>>(x,\n  y);\n}\n"
    assert rewrite(source).count("\n") == source.count("\n")
    assert "y);\n}" in rewrite(source)


def test_launches_in_macros_and_lambdas():
    made = rewrite("#define RUN(K, ...) \\\n  do { K<<<1, 2>>>(__VA_ARGS__); } while (0)\n"
                   "auto f = [&](auto c) { k<c.value><<<1, 2>>>(x); };\n")
    assert made.count("laptop::host_launch") == 2 and "<<<" not in made and made.count("\n") == 3


@pytest.mark.parametrize("declaration, typedef, references", [
    ("__shared__ T tile[BM * (BK + 1)];", "typedef T laptop_type_tile[BM * (BK + 1)];", ["tile"]),
    ("static __shared__ int a[2], b[3][4], c;", "typedef int laptop_type_a[2], laptop_type_b[3][4], laptop_type_c;",
     ["a", "b", "c"]),
    ("volatile __shared__ float v[32];", "typedef volatile float laptop_type_v[32];", ["v"]),
    ("float __shared__ v[32];", "typedef float laptop_type_v[32];", ["v"]),
    ("__shared__ struct { float m; int d[2]; } state;", "typedef struct { float m; int d[2]; } laptop_type_state;",
     ["state"]),
    ("__shared__ std::pair<float, int> best[4];", "typedef std::pair<float, int> laptop_type_best[4];", ["best"]),
    ("__shared__ typename Op::State s;", "typedef typename Op::State laptop_type_s;", ["s"]),
    ("__shared__ float *rows[8];", "typedef float *laptop_type_rows[8];", ["rows"]),
    ("__shared__ float (*row)[8];", "typedef float (*laptop_type_row)[8];", ["row"]),
    ("__shared__ unsigned long long int count;", "typedef unsigned long long int laptop_type_count;", ["count"]),
])
def test_shared_declarations(declaration, typedef, references):
    made = in_kernel(declaration)
    assert made.startswith(typedef), made
    assert re.findall(r"auto& (\w+) =", made) == references


@pytest.mark.parametrize("declaration",
                         ["__shared__ __align__(16) float t[32];", "__align__(16) __shared__ float t[32];",
                          "alignas(16) __shared__ float t[32];", "__shared__ alignas(16) float t[32];",
                          "__shared__ float t[32] __attribute__((aligned(16)));"])
def test_alignment_is_asked_of_the_runtime(declaration):
    made = in_kernel(declaration)
    assert "typedef float laptop_type_t[32]" in made and "struct alignas(16) laptop_align_t_0 {};" in made
    assert "aligned(" not in made


def test_dynamic_shared_memory_several_in_one_file():
    made = rewrite("__global__ void a() { extern __shared__ float s[]; s[0] = 1; }\n"
                   "__global__ void b() { extern __shared__ __align__(16) unsigned char s[]; s[0] = 1; }\n")
    assert made.count('laptop::dynamic_shared("s"') == 2
    assert ("typedef float laptop_type_s[]" in flat(made)
            and "typedef unsigned char laptop_type_s[]" in flat(made))


def test_shared_memory_at_file_scope_is_declared_again_where_it_is_used():
    made = rewrite("extern __shared__ float s[];\n__shared__ int n;\n__device__ float f() { return s[1]; }\n"
                   "__global__ void k() { s[0] = n; }\nvoid host() { int m; }\n").split("\n")
    assert made[2].count("auto& s") == 1 and made[2].count("auto& n") == 0
    assert made[3].count("auto& s") == 1 and made[3].count("auto& n") == 1
    assert "auto&" not in made[0] + made[1] + made[4]


@pytest.mark.parametrize("source, sentence, line", [
    ("__global__ void k(int n) {}\nvoid f() {\n  k(3);\n}", "kernel k is called without <<<grid, block>>>", 3),
    ("template <int N> __global__ void k(int n) {}\nvoid f() {\n  int i;\n k<3>(3);\n}",
     "kernel k is called without <<<grid, block>>>", 4),
    ("__global__ void k() {\n  __shared__ float x = 3;\n}", "cannot have an initial value", 2)])
def test_what_is_not_supported_is_named_in_its_place(source, sentence, line):
    made = rewrite(source).split("\n")
    found = [n for n, text in enumerate(made, 1) if 'static_assert(false, "laptop: ' in text]
    assert found == [line]
    assert sentence in made[line - 1]


@pytest.mark.parametrize("source", [
    '__global__ void k() { asm volatile("" ::: "memory"); }',
    "__global__ void k(int n) {}\nvoid k(float* x) {}\nvoid f() { k(nullptr); }",
    "__global__ void k() { int new_max = 0, newer = new_max, tries = 1, thrown = tries, try_again = thrown; }",
], ids=["a compiler barrier", "a host overload", "names that begin like words of the host"])
def test_what_is_no_fault(source):
    assert "static_assert" not in rewrite(source)


def test_the_outline_survives_conditionals_with_unbalanced_brackets():
    source = ("namespace a {\n"
              "#ifdef FAST\n"
              "__global__ void k(int n) {\n"
              "#else\n"
              "__global__ void k(float n) {\n"
              "#endif\n"
              "  n += 1;\n"
              "}\n"
              "__global__ void after() {}\n"
              "}\n"
              "__global__ void last() {}\n")
    found = kernels(outline(source))
    assert [k.name for k in found] == ["a::k", "a::k", "a::after", "last"]
    assert [k.conditions for k in found] == [(("#ifdef FAST",),), (("#ifdef FAST", "#else"),), (), ()]


def test_an_include_guard_is_no_condition():
    source = "#ifndef K_H\n#define K_H\n__global__ void k() {}\n#endif\n"
    assert kernels(outline(source))[0].conditions == ()


def test_kernels_are_found_in_every_dress():
    source = """
    extern "C" __global__ void a(int n) {}
    extern "C" { __global__ void b(int n) {} }
    namespace x { namespace y { static __global__ void c(int n) {} } }
    namespace x::z { template <typename T, int N = 4> __global__ void __launch_bounds__(N * 32, 2) d(T* p) {} }
    __global__ __launch_bounds__(128) void e(int n) {}
    #define KERNEL __global__ void
    KERNEL f(int n) {}
    __global__ void declared_only(int n);
    template <> __global__ void d<float, 3>(float* p) {}
    struct S { __device__ void operator()(int n) const {} };
    void __global__ g() {}
    """
    found = {k.name: k for k in kernels(outline(source))}
    assert list(found) == ["a", "b", "x::y::c", "x::z::d", "e", "f", "g"]
    assert found["x::z::d"].template == ("typename T", "int N = 4") and found["x::z::d"].required == 1
    assert found["x::z::d"].bounds == "N * 32" and found["e"].bounds == "128" and found["g"].parameters == ()


def test_parameter_names():
    source = ("__global__ void k(const float* __restrict__ x, float *const y, const int n, Op<int, 3> op, "
              "float (*f)(float), float z[], unsigned long long count, float scale = 1.0f) {}")
    assert kernels(outline(source))[0].parameters == ("x", "y", "n", "op", "f", "z", "count", "scale")


def test_constants_and_symbols():
    source = outline("#define TILE 32\n"
                     "#define F(x) (x)\n"
                     "#define HALF (TILE / 2)\n"
                     "#define NAME float\n"
                     "namespace n { constexpr int N = TILE * 2; }\n"
                     "static const float EPS = 1e-5f;\n"
                     "void f(const float x = 1.0f) { const int local = 3; }\n"
                     "__constant__ float filter[9];\n"
                     "__device__ int counter = 0;\n"
                     "__device__ float g(float x) { return x; }\n")
    assert [c[0] for c in constants(source)] == ["TILE", "HALF", "N", "EPS"]
    assert [s[0] for s in symbols(source)] == ["filter", "counter"]


def test_scan_gives_back_every_character():
    source = 'a<b>>c /* x */ "s\\"t" 1.5e-3f // end \\\n still\n#define X \\\n 1\nR"(raw)"'
    tokens = scan(source)
    assert ([t.text for t in tokens] == ["a", "<", "b", ">", ">", "c", '"s\\"t"', "1.5e-3f",
                                         "#define X \\\n 1", 'R"(raw)"'])
    assert all(source[t.start:t.end] == t.text for t in tokens)
