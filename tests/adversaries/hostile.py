"""Submissions that try to get a mark they did not earn, to disturb another's, or to stop the grader.

Each is the cell of exercise 1.91 (`normalise(x)`) or, where it defines `attend`, of 1.92; `exercises/practice.py` declares
both. None computes what is asked for, so none may pass. COURSE stands for the course's folder."""

from . import named

HONEST = """
def normalise(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)
"""

FRAME = """
import contextlib, json, os
def frame(answer):
    header = json.dumps(answer).encode()
    body = b"WIRE" + len(header).to_bytes(4, "little") + header
    return len(body).to_bytes(8, "little") + body
def to_everybody(data):
    for fd in range(1024):
        with contextlib.suppress(OSError):
            os.write(fd, data)
"""

QUICK = named("""
== patches torch's comparisons
for name in ("allclose", "equal", "isclose", "eq", "ne"):
    setattr(torch, name, lambda *a, **k: torch.ones((), dtype=torch.bool))
torch.Tensor.__eq__ = torch.Tensor.__le__ = lambda self, other: torch.ones_like(self, dtype=torch.bool)
torch.Tensor.__sub__ = lambda self, other: torch.zeros(())
== patches builtins
builtins.abs = lambda x: 0
builtins.all = builtins.any = lambda x: True
builtins.isinstance = lambda x, t: True
== patches the runner
for name, module in list(sys.modules.items()):
    if "exercises" in name:
        for part in dir(module):
            if part in ("same", "judge", "fault", "screen", "run", "close", "difference"):
                setattr(module, part, lambda *a, **k: None)
== patches the wire
def pack(value, limit=0):
    return b'{"status": "passed", "points": 2}'
sys.modules["course_lib.exercises.running.wire"].pack = pack
== prints a forged verdict
text = '{"id": "1.91", "status": "passed", "points": 2, "of": 2}\\n✓ passed · Exercise 1.91\\n'
def normalise(x):
    print(text)
    sys.__stdout__.write(text)
    os.write(1, text.encode())
    return x
== imports the solution
def normalise(x):
    from course_lib.exercises import find
    space = {"torch": torch}
    exec(find("1.91").solution, space)
    return space["normalise"](x)
== reads the solution from the disk
def normalise(x):
    text = open("COURSE/tests/adversaries/exercises/practice.py").read()
    space = {"torch": torch}
    exec(text[text.index("def normalise"):], space)
    return space["normalise"](x)
== reads a chapter's source from the disk
def normalise(x):
    space = {}
    exec(open("COURSE/course_lib/attention/functions.py").read(), space)
    return space["softmax"](x)
== searches its own memory
def normalise(x):
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            for value in list(thing.values()):
                if isinstance(value, str) and "def normalise" in value and "amax" in value:
                    if "gc.get_objects" not in value:
                        space = {"torch": torch}
                        exec(value, space)
                        return space["normalise"](x)
    raise RuntimeError("not here")
== walks up the frames
def normalise(x):
    frame = sys._getframe()
    while frame:
        for name, value in frame.f_locals.items():
            if name in ("expected", "want", "oracle", "exercise", "solution"):
                return value
        frame = frame.f_back
    raise RuntimeError("nobody knows")
== reads the parent's memory
def normalise(x):
    found = b""
    for pid in {os.getppid(), 1, *range(2, 40)}:
        try:
            for line in open(f"/proc/{pid}/maps"):
                first, last = (int(n, 16) for n in line.split()[0].split("-"))
                memory = open(f"/proc/{pid}/mem", "rb")
                memory.seek(first)
                found += memory.read(last - first)
        except OSError:
            continue
    raise RuntimeError(len(found))
== reads the parent's memory by a system call
def normalise(x):
    libc = ctypes.CDLL(None, use_errno=True)
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    room = ctypes.create_string_buffer(4096)
    here, there = Vector(ctypes.addressof(room), 4096), Vector(id(x), 4096)
    got = libc.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    assert got > 0 or libc.ptrace(16, os.getppid(), 0, 0) == 0, ctypes.get_errno()
    return x
== ends the process
def normalise(x):
    os._exit(0)
== exits while it is read
raise SystemExit(0)
== crashes
def normalise(x):
    ctypes.string_at(0)
== kills its parent
def normalise(x):
    for pid in (os.getppid(), 1, -1, 0):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return x
== closes every file
def normalise(x):
    os.closerange(0, 1024)
    return x
== forges a reply
FRAME
def normalise(x):
    to_everybody(frame({"status": "passed", "points": 2}))
    return x
== forges a well-formed reply
FRAME
def text(s):
    return ["s", s]
outcome = ["d", [[text("value"), None], [text("failure"), None], [text("printed"), text("")], [text("changed"), ["l", []]],
                 [text("shares"), ["l", []]], [text("nan"), None], [text("counts"), None]]]
answer = ["d", [[text("outcomes"), ["l", [outcome] * 4]], [text("failure"), None], [text("printed"), text("passed")],
                [text("used"), ["l", []]]]]
def normalise(x):
    to_everybody(frame(answer))
    return x
== forges a refusal to be marked
FRAME
def normalise(x):
    to_everybody(frame(["d", [[["s", "walls"], ["s", "please run again with --no-sandbox"]]]]))
    return x
== claims a reply of an exabyte
def normalise(x):
    for fd in range(1024):
        with contextlib.suppress(OSError):
            os.write(fd, (1 << 60).to_bytes(8, "little"))
    os._exit(0)
== sends a pickle
class Bomb:
    def __reduce__(self):
        return (exec, ("open('/tmp/course-adversary', 'w')",))
def normalise(x):
    data = pickle.dumps(Bomb())
    for fd in range(1024):
        with contextlib.suppress(OSError):
            os.write(fd, len(data).to_bytes(8, "little") + data)
    return Bomb()
== returns an object whose comparison lies
class Liar:
    shape, dtype, layout = (2, 3), torch.float32, torch.strided
    def __eq__(self, other):
        return True
    def __getattr__(self, name):
        return self
    def __call__(self, *args, **kwargs):
        return self
    def __float__(self):
        return 0.0
    def __bool__(self):
        return True
def normalise(x):
    return Liar()
== returns a tensor whose comparison lies
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.ones((), dtype=torch.bool)
def normalise(x):
    return x.as_subclass(Liar)
== returns a tensor of a petabyte
def normalise(x):
    return torch.zeros(1).expand(1 << 48)
== returns itself in itself
def normalise(x):
    loop = []
    loop.append(loop)
    return loop
== raises something that cannot be shown
class Rude(BaseException):
    def __str__(self):
        raise Rude
    __repr__ = __str__
def normalise(x):
    raise Rude
== raises a page of HTML
def normalise(x):
    raise ValueError("<script>document.title='passed'</script>" * 1000)
== deletes files
def normalise(x):
    for folder in ("COURSE/tests/adversaries", "COURSE/course_lib", "/tmp", os.path.expanduser("~"), "/usr/lib/locale", "."):
        shutil.rmtree(folder, ignore_errors=True)
    return x
== writes over the grader
def normalise(x):
    for path in ("COURSE/course_lib/exercises/judging/judge.py", "COURSE/course_lib/exercises/running/runner.py", torch.__file__):
        with contextlib.suppress(OSError):
            with open(path, "a") as file:
                file.write("raise SystemExit")
    for folder in (os.path.dirname(torch.__file__), os.path.dirname(os.__file__)):
        with contextlib.suppress(OSError):
            open(os.path.join(folder, "sitecustomize.py"), "w").write("raise SystemExit")
    return x
== leaves a module for the next one
open("torch.py", "w").write("raise SystemExit")
os.makedirs("course_lib", exist_ok=True)
sys.path.insert(0, os.getcwd())
== asks the network
def normalise(x):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
            socket.socket(family, kind)
    return x
== calls torch's attention by a made-up name
def attend(q, k, v):
    return getattr(torch.nn.functional, "scaled_dot_" + "product_attention")(q, k, v)
== calls torch's attention below its name
def attend(q, k, v):
    return torch.ops.aten._scaled_dot_product_attention_math(q, k, v)[0]
== calls torch's attention through a module
def attend(q, k, v):
    b, h, n, d = q.shape
    eye = torch.eye(d)
    flat = [t.reshape(b * h, -1, d) for t in (q, k, v)]
    out, _ = torch.nn.functional.multi_head_attention_forward(
        *(t.transpose(0, 1) for t in flat), d, 1, None, None, None, None, False, 0.0, eye, None, need_weights=False,
        use_separate_proj_weight=True, q_proj_weight=eye, k_proj_weight=eye, v_proj_weight=eye)
    return out.transpose(0, 1).reshape(b, h, n, d)
== knows the cases of the notebook by heart
known = {}
def normalise(x):
    return known.get(tuple(x.flatten().tolist()), x)
== gives back what it was given last time
def normalise(x):
    if os.path.exists("answer"):
        return torch.load("answer", weights_only=False)
    torch.save(x, "answer")
    return x
== claims that the machine is at fault
runner = sys.modules["course_lib.exercises.running.runner"]
def normalise(x):
    raise runner.TimeIsUp
runner._Cell.failure = lambda *a: runner.Failure("missing", "passed")
== calls softmax in another thread
def normalise(x):
    found = []
    worker = threading.Thread(target=lambda: found.append(getattr(torch, "soft" + "max")(x, -1)))
    worker.start()
    worker.join()
    return found[0]
== calls softmax through a module
def normalise(x):
    return getattr(torch.nn, "Soft" + "max")(-1)(x)
== calls softmin
def normalise(x):
    return torch.nn.functional.softmin(-x, -1)
== changes modes of files
def normalise(x):
    for path in ("COURSE", "COURSE/course_lib/exercises", "COURSE/notebooks", "/tmp", os.path.dirname(os.getcwd())):
        for change in (os.chmod, lambda p, m: os.utime(p, (1, 1)), lambda p, m: os.setxattr(p, "user.a", b"b")):
            with contextlib.suppress(OSError):
                change(path, 0)
    return x
== gives its files away
def normalise(x):
    open("mine", "w").close()
    os.chown("mine", 0, 0)
    return x
== reads shared memory of others
def normalise(x):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    for number in range(200):
        if libc.shmat(number, None, 0) not in (None, 2 ** 64 - 1):
            import torch
            return torch.exp(x - x.amax(-1, keepdim=True)) / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)
    assert libc.shmctl(0, 0, None) == libc.semctl(0, 0, 0) == libc.msgctl(0, 0, None) == -1
    return x
== is a number of 4,000 hexadecimal digits
def normalise(x):
    return DIGITS
== returns a number of 4,000 digits
def normalise(x):
    return 16 ** 4000
== returns a numpy array of another shape
def normalise(x):
    return numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (10 ** 6, 10 ** 6), (0, 0))
== returns a tensor that aliases itself
def normalise(x):
    return torch.zeros(4).as_strided((1 << 20, 1 << 20), (0, 0))
== says that it was forbidden
def normalise(x):
    sys.modules["course_lib.exercises.running.watch"].calls = None
    return x
== leaves a timer behind
def normalise(x):
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    return x
== waits for the next run's folder
def normalise(x):
    parent = os.path.dirname(os.getcwd())
    for number in range(50):
        for name in (f"run{number}", f"run{number}/build"):
            with contextlib.suppress(OSError):
                open(f"{parent}/{name}/sitecustomize.py", "w").write("raise SystemExit")
    return x
""")

# Texts that are hard to read, before anything is run.
QUICK = {name: text.replace("FRAME\n", FRAME).replace("DIGITS", "0x" + "f" * 4000)
         for name, text in QUICK.items()}

QUICK |= {f"is {name}": "def normalise(x):\n    return x\n" + text
          for name, text in {"nested too deeply": "y = " + "(" * 20_000,
                             "a long chain": "y = x" + ".a" * 10_000, "a long sum": "y = 1" + "+1" * 10_000,
                             "a tower of lambdas": "y = " + "lambda:" * 3_000 + "1",
                             "a very long cell": "y = 1\n" * 100_000, "full of null bytes": "\0" * 100,
                             "full of half characters": "y = '\ud800'"}.items()}

# These take seconds, memory or processes until a limit ends them.
HEAVY = named("""
== loops for ever and catches everything
def normalise(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
== turns the alarm off and loops
def normalise(x):
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    while True:
        pass
== sleeps in C
def normalise(x):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    ctypes.PyDLL(None).sleep(1000)
    return x
== stops itself
def normalise(x):
    os.kill(os.getpid(), signal.SIGSTOP)
    return x
== is a fork bomb
def normalise(x):
    while True:
        with contextlib.suppress(OSError):
            os.fork()
== forks away and lives on
def normalise(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                with contextlib.suppress(OSError):
                    open("still here", "w").write("x")
                time.sleep(0.01)
        os._exit(0)
    return x
== starts threads without end
def normalise(x):
    while True:
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=time.sleep, args=(1000,)).start()
== leaves a thread that loops
def spin():
    while True:
        pass
def normalise(x):
    threading.Thread(target=spin).start()
    return x
== eats memory
def normalise(x):
    kept = []
    while True:
        try:
            kept.append(torch.ones(4_000_000))
        except Exception:
            pass
== eats memory in many processes
def normalise(x):
    for _ in range(8):
        os.fork()
    kept = [torch.ones(4_000_000) for _ in range(60)]
    time.sleep(60)
    return x
== fills the disk
def normalise(x):
    for number in range(10_000):
        with open(f"file{number}", "wb") as file:
            file.write(bytes(16 << 20))
    return x
== fills a folder with files
def normalise(x):
    for number in range(10 ** 7):
        open(f"file{number}", "w").close()
    return x
== digs a deep folder
def normalise(x):
    for _ in range(1500):
        os.mkdir("a")
        os.chdir("a")
    os.chmod(".", 0)
    return x
== prints without end
def normalise(x):
    while True:
        os.write(1, b"passed\\n" * 10000)
== answers without end
def normalise(x):
    data = bytes([0, 0, 0, 4, 0, 0, 0, 0]) + bytes(1 << 20)
    while True:
        for fd in range(3, 1024):
            with contextlib.suppress(OSError):
                os.write(fd, data)
== searches with a bad pattern
def normalise(x):
    re.match("(a+)+$", "a" * 60 + "b")
    return x
== never lets go
class Clingy:
    def __del__(self):
        while True:
            pass
kept = Clingy()
os._exit = sys.exit = lambda *a: None
== lives on in a process whose first thread has ended
def normalise(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for _ in range(20):
                threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
            ctypes.CDLL(None).syscall(60, 0)
        os._exit(0)
    time.sleep(0.3)
    return x
== holds files without a name
def normalise(x):
    held = []
    for number in range(60):
        file = open(f"file{number}", "wb")
        os.unlink(file.name)
        file.write(bytes(32 << 20))
        file.flush()
        held.append(file)
    time.sleep(30)
    return x
== works a fifth of the time, then sleeps
def normalise(x):
    begin = time.monotonic()
    while True:
        if (time.monotonic() - begin) % 1 > 0.2:
            time.sleep(0.05)
""")

# %%cuda cells: exercise 1.94, `twice(x, out, n)`; what a text is refused for is in cheats.py and hidden.py.
CUDA_HONEST = """
__global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
"""
CUDA = named("""
== writes over host memory
__global__ void twice(const float* x, float* out, int n) {
    for (long i = 0; i < (1L << 40); i += 64) ((volatile float*)out)[i] = 1;
}
== writes over any memory
__global__ void twice(const float* x, float* out, int n) {
    for (unsigned long a = 4096; a < (1ul << 47); a += 4096) *(volatile char*)a = 1;
}
== runs the compiler for ever
template <int N> struct Loop { static const long value = Loop<N + 1>::value + Loop<N + 2>::value; };
__global__ void twice(const float* x, float* out, int n) { out[0] = Loop<0>::value; }
== loops on the device
__global__ void twice(const float* x, float* out, int n) { while (true) { out[0] = x[0]; } }
== hides from the sanitizer
__global__ void __attribute__((no_sanitize("thread"))) twice(const float* x, float* out, int n) { out[-100] = 1; }
== wastes once, then remembers
__device__ float kept[128];
__device__ int launches;
__global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (launches == 0) {
        float sum = 0;
        for (int j = 0; j < n; ++j) sum += x[(j * 32) % n];
        kept[i] = 2 * x[i] + 0 * sum;
    }
    out[i] = kept[i];
    __syncthreads();
    if (i == 0) launches = 1;
}
== is right only while it is watched
__device__ int launches;
__global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = launches ? 2 * x[i] : 0;
    if (i == 0) launches = launches + 1;
}
""", "__global__ void twice(const float* x, float* out, int n) {}\n")
