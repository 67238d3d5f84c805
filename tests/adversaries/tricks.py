"""More submissions that try to get a mark they did not earn, or to stop the grader; see hostile.py.

PYTHON is for exercise 1.91 (`normalise(x)`), KERNELS for 1.94 (`twice(x, out, n)`). None computes what is asked for in the
way that the exercise asks, so none may pass."""

from . import named

PYTHON = named("""
== raises the recursion limit and recurses
def normalise(x):
    sys.setrecursionlimit(2 ** 30)
    return normalise(x)
== ends badly at exit
atexit.register(os._exit, 0)
atexit.register(lambda: [os.write(fd, b'x' * 100) for fd in range(3, 300)])
== hooks the garbage collector
def look(phase, info):
    for thing in gc.get_objects():
        if type(thing).__name__ in ("Run", "Outcome"):
            thing.failure, thing.value = None, None
gc.callbacks.append(look)
gc.set_threshold(1)
== hooks every import
class Finder:
    def find_spec(self, name, path=None, target=None):
        sys.stderr.write(name)
        raise SystemExit(0)
sys.meta_path.insert(0, Finder())
sys.path_hooks.insert(0, lambda path: 1 / 0)
== writes to its own process
def normalise(x):
    for name, text in (("mem", b"x"), ("oom_score_adj", b"-1000"), ("comm", b"grade"), ("coredump_filter", b"ff"), ("clear_refs", b"1"),
                       ("setgroups", b"allow"), ("uid_map", b"0 0 1"), ("attr/current", b"x"), ("timerslack_ns", b"1")):
        with contextlib.suppress(OSError):
            with open(f"/proc/self/{name}", "wb") as file:
                file.write(text)
    return x
== leaves an answer in shared memory
def normalise(x):
    for path in ("/dev/shm/answer", "/dev/mqueue/answer", "/run/lock/answer", "/var/tmp/answer"):
        with contextlib.suppress(OSError):
            open(path, "ab").write(b"x")
    from multiprocessing import shared_memory
    kept = shared_memory.SharedMemory("answer", create=True, size=1000)
    return x
== profiles its caller
seen = []
def watch(frame, event, argument):
    seen.append((frame.f_code.co_name, argument))
    for name, value in frame.f_locals.items():
        if name in ("expected", "want", "cases", "oracle"):
            raise SystemExit(repr(value))
sys.setprofile(watch)
sys.settrace(lambda *a: watch(*a) or watch)
== patches how tensors are copied
for name in ("clone", "detach", "contiguous", "numpy", "tolist", "to", "cpu", "float", "view", "reshape", "numel", "data_ptr", "untyped_storage"):
    setattr(torch.Tensor, name, lambda self, *a, **k: torch.ones(()))
torch.frombuffer = torch.from_numpy = torch.as_tensor = lambda *a, **k: torch.ones(())
== handles every signal
for number in range(1, 65):
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, lambda *a: None)
faulthandler.disable()
== becomes another program
def normalise(x):
    os.environ["LD_PRELOAD"] = "./evil.so"
    os.execv(sys.executable, [sys.executable, "-c", "import os; [os.write(fd, bytes(8)) for fd in range(3, 300)]"])
== answers from two processes
os.fork()
def normalise(x):
    os.fork()
    return x
== changes its answer after it has returned
def normalise(x):
    out = x.clone()
    def later():
        time.sleep(0.05)
        out.copy_(torch.ones_like(out))
    threading.Thread(target=later, daemon=True).start()
    return out
== raises its limits
def normalise(x):
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            for limits in ((-1, -1), (1 << 40, 1 << 40)):
                with contextlib.suppress(OSError, ValueError):
                    resource.setrlimit(getattr(resource, name), limits)
                    resource.prlimit(1, getattr(resource, name), limits)
    return x
== asks the kernel for rights
libc = ctypes.CDLL(None, use_errno=True)
got = []
def normalise(x):
    for name, arguments in (("unshare", (0x10000000,)), ("setns", (0, 0)), ("mount", (b"none", b".", b"tmpfs", 0, None)), ("chroot", (b".",)),
                            ("pivot_root", (b".", b".")), ("setuid", (0,)), ("setgid", (0,)), ("capset", (None, None)), ("swapon", (b".", 0)),
                            ("sethostname", (b"x", 1)), ("settimeofday", (None, None)), ("reboot", (0,)), ("init_module", (None, 0, b"")),
                            ("acct", (b".",)), ("quotactl", (0, None, 0, None)), ("personality", (0x0040000,))):
        if getattr(libc, name, None) and getattr(libc, name)(*arguments) == 0 and name not in ("setuid", "setgid", "personality"):
            got.append(name)
    if got:
        return torch.softmax
    return x
== asks the kernel by number
libc = ctypes.CDLL(None, use_errno=True)
def normalise(x):
    x86 = platform.machine() == "x86_64"
    numbers = (101, 310, 311, 312, 321, 323, 425, 426, 434, 438, 440, 298, 304, 303, 246, 320) if x86 else (117, 270, 271, 272, 280, 282, 425, 426, 434, 438, 440, 241)
    for number in numbers:
        libc.syscall(number, os.getppid(), 0, 0, 0, 0, 0)
    return x
== links to what it may not read
def normalise(x):
    for make in (os.link, os.symlink):
        for path in ("COURSE/tests/adversaries/exercises/practice.py", "/etc/shadow"):
            with contextlib.suppress(OSError):
                make(path, "here")
                text = open("here").read()
                space = {"torch": torch}
                exec(text[text.index("def normalise"):].split('",')[0].encode().decode("unicode_escape"), space)
                return space["normalise"](x)
            finally:
                os.path.lexists("here") and os.unlink("here")
    return x
== leaves a folder that is hard to remove
def normalise(x):
    os.mkfifo("pipe")
    os.symlink("/", "root")
    os.symlink("loop", "loop")
    for name in ("new\\nline", "\\u202egnp.exe", "-rf", "\\x01\\x7f", "a" * 250, "~", "*"):
        open(name, "w").close()
    os.mkdir("dark")
    open("dark/file", "w").close()
    os.truncate("a" * 250, 60 << 20)
    return x
== computes on no device
torch.set_default_device("meta")
torch.set_default_dtype(torch.float64)
def normalise(x):
    return torch.empty(x.shape)
== returns a tensor that is no array
kinds = iter([lambda x: x.to_sparse(), lambda x: torch.view_as_complex(torch.stack([x, x], -1)).conj(), lambda x: x.bool(), lambda x: x.to(torch.bfloat16)._neg_view(),
              lambda x: torch.nested.nested_tensor([x, x]), lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), lambda x: x.to("meta")])
def normalise(x):
    return next(kinds, lambda x: x)(x)
== returns numbers that compare as it likes
class Number(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    def __float__(self): return 1.0
    __hash__ = None
def normalise(x):
    return [[Number(v) for v in row] for row in x.tolist()]
== returns NaNs with a payload
def normalise(x):
    return torch.full_like(x, struct.unpack("<f", bytes.fromhex("efbec07f"))[0])
== is an object that says it is a tensor
class normalise:
    __class__ = torch.Tensor
    def __init__(self, *a): pass
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
== replaces torch
fake = types.ModuleType("torch")
fake.__getattr__ = lambda name: (lambda *a, **k: True)
sys.modules["torch"] = fake
== replaces what Python is made of
import builtins
keep = dict(vars(builtins))
for name in ("len", "type", "getattr", "hasattr", "repr", "str", "bytes", "open", "__import__", "__build_class__", "print", "sorted", "zip"):
    setattr(builtins, name, lambda *a, **k: 1 / 0)
== raises a chain without an end
def normalise(x):
    first, second = ValueError("a" * 10 ** 6), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    raise first
== changes the number 1
def normalise(x):
    ctypes.c_int32.from_address(id(1) + 24).value = 0
    ctypes.c_int32.from_address(id(2) + 24).value = 1
    return x
== makes its output a disaster
def normalise(x):
    sys.stdout = sys.stderr = None
    os.dup2(0, 1)
    os.close(2)
    sys.__stdout__.write("\\x1b]0;passed\\x07\\x1b[2J" * 1000)
    return x
== calls softmax inside a compiled graph
def normalise(x):
    graph = torch.jit.CompilationUnit("def f(x):\\n    return torch." + "soft" + "max(x, -1)\\n")
    return graph.f(x)
== calls softmax of a functional transform
def normalise(x):
    return torch.func.vmap(getattr(torch, "soft" + "max"), in_dims=(0, None))(x, -1)
== is written in another encoding
# -*- coding: rot13 -*-
qrs abeznyvfr(k):
    erghea gbepu.fbsgznk(k, -1)
""")

BODY = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = {};"
HEAD = "__global__ void twice(const float* x, float* out, int n) {{ {} }}\n"
KERNELS = {
    "computes the name of an include": '#define FILE "COURSE/kernels/attention.cu"\n#include FILE\n' + HEAD.format(BODY.format("1")),
    "defines a hook": "void __tsan_read4(void*) {}\n" + HEAD.format(BODY.format("2 * x[i]")),
    "a pragma in a macro": '#define QUIET _Pragma("GCC optimize 3")\nQUIET\n' + HEAD.format(BODY.format("2 * x[i]")),
    "macros that multiply": "#define A x[i],x[i],\n" + "".join(f"#define {b} {a} {a} {a} {a} {a} {a} {a} {a} {a} {a}\n" for a, b in zip("ABCDEFGH", "BCDEFGHI"))
                            + HEAD.format("int i = 0; float all[] = {{ I }}; out[0] = all[n];".replace("{{", "{").replace("}}", "}")),
    "counts at compile time": "constexpr long count(long n) { long s = 0; for (long i = 0; i < n; ++i) for (long j = 0; j < n; ++j) s += i ^ j; return s; }\n"
                              "constexpr long LONG = count(1l << 30);\n" + HEAD.format(BODY.format("LONG")),
    "an array of gigabytes": "int wide[1 << 29] = {1};\n" + HEAD.format(BODY.format("wide[n]")),
    "runs a program": HEAD.format('system("kill -9 -1"); ' + BODY.format("1")),
    "writes by printf": "#include <cstdio>\n" + HEAD.format(BODY.format("2 * x[i]") + ' printf("%n", (int*)out);'),
    "writes by the sine": HEAD.format("int i = blockIdx.x * blockDim.x + threadIdx.x; float c; sincosf(x[i], out + n + 100 + i, &c); if (i < n) out[i] = 2 * x[i];"),
    "jumps to an address": HEAD.format("void* p = (void*)x; goto *p;"),
    "calls an address": HEAD.format("((void (*)())x)(); out[0] = 1;"),
    "recurses without an end": "float deeper(float y) { volatile float z[64]; z[0] = y; return deeper(z[0] + 1) + z[0]; }\n" + HEAD.format(BODY.format("deeper(x[i])")),
    "a stack of gigabytes": HEAD.format("volatile float own[1 << 28]; own[n] = x[0]; own[0] = 1; " + BODY.format("own[n]")),
    "leaves by longjmp": "#include <csetjmp>\n" + HEAD.format("jmp_buf b; longjmp(b, 1);"),
}
