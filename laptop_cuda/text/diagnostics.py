"""What a compiler printed, as errors in the lines of the source, in words that a student can use."""
import re
from pathlib import Path

SHOWN_ERRORS = 3
# Reject a non-void function without any return. One that may fall off its end is reported when it does.
REFUSED = re.compile(r"warning: (no return statement in function returning non-void"
                     r"|non-void function does not return a value(?! in all))")
# of whole programs: what nvcc warns of as well
WARNINGS = ("-Wparentheses", "-Wtype-limits", "-Wformat", "-Wuninitialized", "-Wunused-variable",
            "-Wreturn-type")
MISSING = ": name the source that has it too, or its library by -l"
OWN_WARNING = tuple(f"[{name}]" for name in WARNINGS)
UNDEFINED = re.compile(r"undefined reference to [`'](.*?)'|undefined symbol: (.*)$")

# as GNU's linkers name a file, and as LLVM's does
BLAMED = re.compile(r"([^/\s:]+):\d+: (?:error: )?undefined reference|referenced by ([^/\s:]+):\d+")

# both name the variable, and in a note the line that declares it
UNSET = re.compile(r"(?:variable )?'(?P<variable>[\w.:]+)' (?:is|may be) (?:used )?uninitialized")
DECLARED = re.compile(r"'(?P<variable>[\w.:]+)' (?:was )?declared here|initialize the variable '(?P<other>\w+)'")

# as g++ says it, and as clang does
NOT_A_MEMBER = re.compile(r"error: (?:no (?:member|type|template) named )?'(\w+)' "
                          r"(?:is not a member of|in namespace) '((?:cub|at|c10|torch)(?:::\w+)*)'"
                          r"|error: '((?:cub|at|c10|torch)(?:::\w+)+)' has not been declared")


def undefined_names(output: str) -> tuple[set[str], set[str]]:
    """The last parts of the names that the linker missed, `forward` of `void ns::Net::forward<4>(int)`, and the
    files that use them."""
    symbols = (match[1] or match[2] for match in map(UNDEFINED.search, output.splitlines()) if match)
    return ({re.split(r"[(<\[]", symbol)[0].split()[-1].split("::")[-1].lstrip("~") for symbol in symbols},
            {match[1] or match[2] for match in BLAMED.finditer(output)})


def unknown_names(output: str) -> set[str]:
    """Names of CUB and torch that the compiler did not find: `cub::BlockHistogram`."""
    return {whole or f"{scope}::{name}" for name, scope, whole in NOT_A_MEMBER.findall(output)}


class CompileError(Exception):
    """A source that does not compile. `.errors` is a list of (line, message); line 0: of no line."""

    def __init__(self, name: str, text: str, errors: list[tuple[int, str]], output: str):
        self.name, self.text, self.errors, self.output = name, text, errors, output
        self.line = errors[0][0] if errors else 0
        super().__init__(self._message())

    def _message(self) -> str:
        lines = self.text.split("\n")
        shown = [f"{'This cell' if self.name == 'cell' else self.name} does not compile."]
        for line, message in self.errors[:SHOWN_ERRORS]:
            shown.append(f"\nline {line}: {message}" if line else f"\n{message}")
            if 0 < line <= len(lines):
                shown.append(f"{line:6} | {lines[line - 1].rstrip()}")
        if len(self.errors) > SHOWN_ERRORS:
            shown.append(f"\nand {len(self.errors) - SHOWN_ERRORS} more")
        return "\n".join(shown)

    def _render_traceback_(self) -> list[str]:
        return [f"CompileError: {self}"]


DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?:\s+(?P<kind>fatal error|error|note|warning"
    r"|required|recursively required|in '?constexpr|instantiated)\b:?\s*(?P<message>.*)$")
# (pattern of the compiler's message, ours). If a DECISIVE one matches, the rest follow from it: drop them.
HALF, BFLOAT = r"(half2?|__half2?)", r"((?:__)?nv_bfloat162?)"
UNKNOWN = (r"(?=unknown type name|use of undeclared|no template named|there are no arguments"
           r"|'\w+' (?:was not declared|has not been declared|does not name a type))[a-z ]*'({0})'.*")
# what the engine does not have, by its names: of a program that uses several, the first is said
NOT_HAD = {
    "CUDA's driver API, which the engine does not have; it has the runtime API (cudaMalloc, <<<>>>)":
        r"CU(?:device|context|module|function|deviceptr|stream|event|jit|mem|link|kernel|library|ctx)\w*"
        r"|cu(?:Init|Driver|Device|Ctx|Module|Mem|Launch|Func|Stream|Event|Link|Library|Kernel)[A-Z_]?\w*",
    "CUDA's graphs, which the engine does not have; launch the kernels themselves, one after another":
        r"cudaGraph\w*|cudaStream(?:Begin|End|Get|Update)Captur\w*|cudaUserObject\w*"
        r"|cuda(?:Kernel|Memset|Host|ChildGraph|Conditional|MemAlloc)NodeParams\w*",
    "CUDA's textures, surfaces and arrays, which the engine does not have; read device memory instead":
        r"(?:tex|surf)(?:[123]D|Cubemap)\w*|texture|surface|textureReference|surfaceReference"
        r"|(?:make_)?cuda\w*(?:Texture|Surface|Array|Mipmap|ChannelDesc|ChannelFormat|Resource|3D|Extent|Pos"
        r"|PitchedPtr|AddressMode|FilterMode|ReadMode|BoundaryMode)\w*",
    "CUDA's pools of memory, which the engine does not have; it has cudaMallocAsync and cudaFreeAsync":
        r"cuda\w*MemPool\w*|cudaMallocFromPoolAsync|cudaMem(?:Allocation|Handle|Access)\w*",
    "CUDA's quasi-random sequences, which the engine does not have; curand's XORWOW and Philox are here":
        r"curand\w*(?:Sobol|Quasi|DirectionVector|ScrambleConstants)\w*|CURAND_\w*(?:QUASI|DIRECTION_VECTORS)\w*",
    "CUDA's memory of other processes, which the engine does not have": r"cudaIpc\w*",
    "CUDA's marks with attributes, which the engine does not have; nvtxRangePush takes a text":
        r"nvtxEventAttributes_t|nvtx\w+Ex|NVTX_\w+",
    "CUDA's samples' helpers, which the engine does not have; compare and write in main":
        r"sdkCompare\w+|compareData\w*|sdkWriteFile"}
DECISIVE = [(r".*static assertion failed:? (?:due to requirement '[^']*' )?:?\s*\"?laptop: (.*?)\"?$", r"\1"),
            (r"#error \"?(.*?)\"?$", r"\1"),
            (r"static_assert failed:? (?:due to requirement '[^']*' )?\"?laptop: (.*?)\"?$", r"\1"),
            (UNKNOWN.format(HALF), r"half precision needs `#include <cuda_fp16.h>`"),
            (UNKNOWN.format(BFLOAT), r"bfloat16 needs `#include <cuda_bf16.h>`"),
            *((UNKNOWN.format(names), rf"\1 is of {what}") for what, names in NOT_HAD.items())]
CLEARER = [
    (r"suggest parentheses around assignment.*|using the result of an assignment as a condition.*",
     "`=` where `==` may be meant"),
    (r"'?([\w./+-]+)'?( file not found|: No such file or directory)$",
     r'there is no \1 beside the source (in ""), in the folders given by -I, or in the engine'),
    (r"(?:ISO C\+\+ forbids )?variable length array.*|.*variable length array.*",
     "an array's size must be known when the kernel is compiled: a constant, a #define or a template "
     "parameter"),
    (r"'(__\w+|atomic\w+)' was not declared in this scope.*",
     r"\1 is not declared: a misspelling, or not supported here"),
    (r"use of undeclared identifier '(__\w+|atomic\w+)'.*",
     r"\1 is not declared: a misspelling, or not supported here"),
    (r"no matching function for call to '(call|types)\(<unresolved overloaded function type>.*",
     "these template arguments fit no kernel of that name"),
    (r"there are no arguments to '(\w+)' that depend on a template parameter.*",
     r"\1 is not declared: a misspelling, or not supported here"),
    (r"no return statement in function returning non-void.*|non-void function does not return a value.*",
     "this function returns nothing, but its type says it does")]


def read_errors(output: str, name: str, beside: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    # over the guide: one pass over the lines, each kind of line with its branch
    """(line of the source, message) for each error in a compiler's output; line 0: none in the source.

    An error in a file `beside` the source names that file and its line in the message.
    """
    found: list[tuple[int, str]] = []
    outside: list[tuple[int, str]] = []      # errors for which no line of the source is named
    pending = 0              # a line of the source that the compiler names before an error in a header
    elsewhere = None         # an error in a header, waiting for such a line
    for text in output.splitlines():
        undefined = UNDEFINED.search(text)
        match = None if undefined else DIAGNOSTIC.match(text)
        if not match:
            if undefined:
                line = re.search(re.escape(Path(name).name) + r":(\d+)", text)
                symbol = undefined.group(1) or undefined.group(2)
                found.append((int(line.group(1)) if line else 0, f"{symbol} is declared but nowhere defined"))
            elif missing := re.search(r"(?:cannot|unable to) find (?:library )?-l([^\s:]+)", text):
                found.append((0, f"this machine has no library {missing[1]} (-l{missing[1]})"))
            elif text.startswith(("In file included", "                 from")):
                included = re.search(re.escape(name) + r":(\d+)", text)
                pending = int(included.group(1)) if included else pending
            continue
        ours = match["file"] == name
        line = int(match["line"])
        if match["kind"] in ("error", "fatal error"):
            if elsewhere:
                outside.append((0, elsewhere))
            elsewhere = None
            message = _clearer(match["message"])
            if ours:
                found.append((line, message))
            elif match["file"] in beside:
                found.append((0, f"{match['file']}, line {line}: {message}"))
            elif pending:
                found.append((pending, message))
            else:
                elsewhere = message
            pending = 0
        elif ours and match["kind"] not in ("note", "warning"):
            pending = pending or line
        elif ours and elsewhere and match["kind"] == "note":
            found.append((line, elsewhere))
            elsewhere = None
    if elsewhere:
        outside.append((0, elsewhere))
    found = found or outside                 # the others follow from those of the source
    decisive = [e for e in found if e[1].startswith("\0")]
    found = [(line, message.removeprefix("\0")) for line, message in (decisive or found)]
    found = sorted(dict.fromkeys(found), key=lambda e: e[0] or 10**9)
    lacks = [message.partition(" is of ")[2] in NOT_HAD for _, message in found]
    if any(lacks):                           # one line says it, and the others follow from it
        return [found[lacks.index(True)]]
    return found or [(0, output.strip()[-2000:])]


def program_errors(output: str, name: str, beside: tuple[str, ...]) -> list[tuple[int, str]]:
    """As `read_errors`, where a source may be missing on the command line."""
    return [(line, said + MISSING * said.endswith("nowhere defined"))
            for line, said in read_errors(output, name, beside)]


def read_warnings(output: str, files: tuple[str, ...]) -> list[str]:
    """Those of WARNINGS about the sources, each with its file and line."""
    found = []
    for match in filter(None, map(DIAGNOSTIC.match, output.splitlines())):
        if match["file"] in files and match["kind"] == "warning" and match["message"].endswith(OWN_WARNING):
            found.append(f"{match['file']}, line {match['line']}: {_clearer(match['message'])}")
    return list(dict.fromkeys(found))


def unset_variables(output: str, name: str) -> list[tuple[int, str]]:
    """(line, variable) where an optimising compiler has seen that a variable may be read before it has a
    value: where it is declared, if the compiler says so."""
    found, last = [], {}
    for match in filter(None, map(DIAGNOSTIC.match, output.splitlines())):
        if match["file"] != name:
            continue
        if unset := UNSET.match(match["message"]):
            last[unset["variable"]] = len(found)
            found.append((int(match["line"]), unset["variable"]))
        elif (declared := DECLARED.match(match["message"])) and (declared["variable"] or declared["other"]) in last:
            at = last[declared["variable"] or declared["other"]]
            found[at] = (int(match["line"]), found[at][1])
    return sorted(set(found))


def read_nvcc_errors(output: str, name: str) -> list[tuple[int, str]]:
    """As `read_errors`, for nvcc's own way of writing them: `path/name(12): error: ...`."""
    found = []
    pattern = rf"(?m)^\S*\b{re.escape(name)}\((\d+)\): (?:fatal )?error(?: #\S+)?: (.*)$"
    for line, message in re.findall(pattern, output):
        found.append((int(line), message))
    return list(dict.fromkeys(found)) or read_errors(output, name)


def _clearer(message: str) -> str:
    message = re.sub(r"\s*\[-W[\w=-]+\]$", "", message)
    for mark, known in (("\0", DECISIVE), ("", CLEARER)):
        for pattern, better in known:
            if re.fullmatch(pattern, message):
                return mark + re.sub(pattern, better, message)
    message = re.sub(r"\blaptop_type_(\w+)", r"\1", message)
    return re.sub(r"; did you mean '_\w+'\?", "", message)
