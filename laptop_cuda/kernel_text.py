"""What a text that is judged may hold, and what is not for a kernel. Nothing here knows C: a page has it too."""
import difflib
import functools
import re

from .packs import folders
from .text.plain import plain_text, unreadable

# Features of the compiler that reach past the kernel: what uses them is neither counted nor checked. Spelled
# in any way that the preprocessor allows, hence no pasting of tokens and no other spellings of `#` and `[`.
BEYOND = {"__attribute__", "__attribute", "__declspec", "asm", "__asm__", "__asm", "_Pragma", "__has_include",
          "__has_embed", "__extension__", "gnu", "__gnu__", "clang"}
# Names that begin so are the implementation's: an unknown one may be a macro of the C library, which can
# stand for anything. CUDA's own are in the engine's headers, or begin as one that a macro there completes.
RESERVED = re.compile(r"__\w+|_[A-Z]\w*")
STANDARD = {"__int128", "__func__", "__FILE__", "__LINE__", "__VA_ARGS__", "__VA_OPT__", "_Bool",
            "__noinline__", "__maxnreg__"}
# conversions, packed integers, what is asked of a number, and what macros make of two names
INTRINSIC = re.compile(r"__[a-z]+\d*2[a-z]+\d*(?:_r[nzdu])?|__v[a-z]+[24]|"
                       r"__(?:isnan|isinf|finite|signbit)[fd]?|__(?:shfl(?:_up|_down|_xor)?|ballot)_sync")
# an array without a size, whose elements no bounds check and, where it is constant, no hook sees
OPEN_ARRAY = re.compile(r"(?:\A|[;{}])(?P<before>[^;{}()]*)\[\s*\]\s*[,;]")
# names of the compiler and of the engine; `__builtin_align__` is CUDA's
OWN_NAMES = re.compile(r"__atomic_|__sync_|__builtin_(?!align__$)|__tsan|__sanitizer|laptop|LAPTOP")
# what the engine defines as macros, so that it sees what they touch
ENGINE_MACROS = {"memcpy", "memset", "memmove", "printf", "assert", "abort", "exit"}
DIRECTIVES = {"include", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "pragma",
              "error", "warning"}
SPELLINGS = {"##": "`##`", "%:": "`%:`", "<:": "`<:`", "[[": "an attribute in `[[ ]]`", "??": "`??`"}
HEADERS = re.compile(r"cuda/(?:barrier|ptx)|(?:cuda(?:_\w+)?|cuComplex|c?math|cstdio|stdio|cassert|assert|"
                     r"cfloat|float|climits|limits|cstdint|stdint)(?:\.h)?")
# a bracket that follows no name, call or index opens a lambda
LAMBDA = re.compile(r"(?:^|[^\w\s)\]]|\breturn)\s*\[")


def refused(source: str, forbid: tuple[str, ...] = (), given: str = "") -> str | None:
    """A sentence about the first thing in a text that is not for a kernel, or is in `forbid`.

    `given` is the text that was handed out: what it uses may be used."""
    if told := unreadable(source):
        return told
    plain, given = plain_text(source), plain_text(given)
    words = set(re.findall(r"\w+", plain))
    for name in forbid:
        if name in words or name == "lambda" and LAMBDA.search(plain):
            return f"`{name}` may not be used here: the exercise is to do without it."
    for name in sorted(words & BEYOND):
        if name not in given:
            return f"`{name}` may not be used in an exercise: it reaches past the kernel."
    for name in sorted(words):
        if OWN_NAMES.match(name):
            return f"`{name}` may not be used in an exercise: it is the compiler's or the engine's."
    for name in sorted(filter(RESERVED.fullmatch, words)):
        if not _of_cuda(name) and name not in given:
            meant = difflib.get_close_matches(name, _names_of_cuda()[0], 1, 0.85)
            return (f"`{name}` is no name of CUDA's: is it a misspelling of `{meant[0]}`?" if meant else
                    f"`{name}` may not be used in an exercise: names that begin so are the compiler's.")
    if any("__shared__" not in found["before"] for found in OPEN_ARRAY.finditer(plain)):
        return "An array without a size may not be declared here, unless it is `extern __shared__`."
    for spelling, said in SPELLINGS.items():
        if spelling in plain and spelling not in given:
            return f"{said} may not be used in an exercise."
    if re.search(r"\bextern\b(?!\s+__shared__)", plain):
        return "`extern` may be used for `__shared__` arrays only."
    for line in re.findall(r"^\s*#\s*(\w+)(.*)$", plain, flags=re.M):
        told = _directive(*line)
        if told and told not in given:
            return told
    return None


@functools.cache
def _names_of_cuda() -> tuple[set[str], tuple[str, ...]]:
    """Of the engine's headers: the names, and the beginnings of those that macros complete."""
    text = "\n".join(path.read_text() for folder in folders("include") for path in folder.glob("*.h"))
    return set(RESERVED.findall(text)), tuple(re.findall(r"\b(__\w+)##", text))


def _of_cuda(name: str) -> bool:
    names, beginnings = _names_of_cuda()
    return (name in names or name in STANDARD or name.startswith(beginnings)
            or INTRINSIC.fullmatch(name) is not None)


def _directive(name: str, rest: str) -> str | None:
    if name == "include":
        header = re.fullmatch(r'\s*[<"]([\w./]+)[>"]\s*', rest)
        if not header or not HEADERS.fullmatch(header[1]):
            return (f"`#include{rest}` may not be used in an exercise; <cuda_fp16.h> and its like, and those "
                    "for numbers such as <cmath>, may.")
    if name == "pragma" and rest.split()[:1] not in (["unroll"], ["once"]):
        return f"`#pragma{rest}` may not be used in an exercise; `#pragma unroll` may."
    if name in ("define", "undef") and (found := re.match(r"\s*(\w+)", rest)):
        if found[1].startswith("__"):
            return (f"`#{name}{rest}` may not be used in an exercise: names that begin with two underscores "
                    "are the compiler's.")
        if found[1] in ENGINE_MACROS:
            return f"`#{name}{rest}` may not be used in an exercise: `{found[1]}` keeps its meaning."
    return None if name in DIRECTIVES else f"`#{name}` may not be used in an exercise."
