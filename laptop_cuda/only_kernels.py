"""For a judge: `with only_kernels():` nothing is loaded but kernels.

A text that goes beyond is refused before it is compiled; a build of it that calls anything but the engine and
mathematics, or holds code that runs when it is loaded, is refused before it is loaded. Where counts matter,
so is one that copies structs where they are not counted."""
import re
from contextlib import contextmanager
from pathlib import Path

from .build import PRINTED, runtime_library
from .kernel_text import refused
from .text.diagnostics import DIAGNOSTIC, CompileError
from .text.plain import plain_text
from .toolchain.by_value import uncounted_copy
from .toolchain.compilers import compiler
from .toolchain.hooked import unhooked
from .toolchain.object_file import ObjectFile, read_object

EMPTY_ARRAY = re.compile(r"zero.size arrays?\b|flexible array member")
# what compilers call of their own accord: to set and copy memory, to unwind, and for arithmetic on integers
# and 16-bit numbers that the processor has no instruction for
COMPILERS = re.compile(
    r"mem(?:cpy|move|set)|_GLOBAL_OFFSET_TABLE_|_Unwind_Resume|__g(?:xx|cc)_personality_v0|__stack_chk_fail|"
    r"__(?:popcount|clz|ctz|ffs|parity|bswap|mul|u?div|u?mod|u?divmod|ash[lr]|lshr|neg|u?cmp|float(?:un)?|"
    r"fix(?:uns)?|extend|trunc|add|sub|[egl][qte]|ne|unord|pow)[sdthxfi]{2,4}\d?")
# of the library of mathematics: what takes and gives numbers, and what the engine wraps. The others write
# and read where no hook sees it (canonicalize, setpayload, nan) and are no functions of a GPU.
MATHEMATICS = re.compile(
    r"(?:__)?(?:a?(?:cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp(?:10|2|m1)?|fabs|fdim|finite|floor|"
    r"fma|fmax|fmin|fmod|fpclassify|frexp|hypot|ilogb|is(?:inf|nan)|j[01n]|ldexp|lgamma|ll?(?:rint|round)|"
    r"log(?:10|1p|2|b)?|modf|nearbyint|nextafter|pow|remainder|remquo|rint|round(?:even)?|scalbl?n|signbit|"
    r"sincos|sqrt|tgamma|trunc|y[01n])f?")
KEYWORDS = {"_Znw": "new", "_Zna": "new[]", "_Zdl": "delete", "_Zda": "delete[]", "_ZTV": "virtual",
            "__cxa_pure": "virtual", "__dynamic_cast": "dynamic_cast", "_ZTI": "throw", "__cxa_": "throw",
            "_ZSt": "throw", "__tls_": "thread_local", "__emutls": "thread_local"}
# the initialiser that -fsanitize=thread adds, by g++ and by clang
TRACERS = {".init_array.00099", ".init_array.0"}
_active, _counted = False, False


class NotAllowed(CompileError):
    """A source that compiles, and is more than kernels."""

    def __init__(self, name: str, source: str, told: str):
        self.told = told
        super().__init__(name, source, [(0, told)], "")

    def _message(self) -> str:
        return self.told


@contextmanager
def only_kernels(counted: bool = False):
    """Raise NotAllowed before a library is loaded that is more than kernels, or not all counted."""
    global _active, _counted
    before, (_active, _counted) = (_active, _counted), (True, counted)
    try:
        yield
    finally:
        _active, _counted = before


def as_judged(source: str) -> str:
    """The text to be compiled: where kernels are judged, what the judge has read, not what a compiler might."""
    return plain_text(source) if _active else source


def warnings_wanted() -> list[str]:
    """What the compiler is asked about a text that is judged."""
    return ["-Wpedantic"] if _active else []


def check_library(library: Path, name: str, source: str) -> None:
    """Raise NotAllowed for a build that goes beyond kernels, where that is asked."""
    if _active and (told := beyond(library, name, _counted)):
        raise NotAllowed(name, source, told)


def refusal(kernel) -> str | None:
    """A sentence on the first thing in a kernel's source or builds that a judge of counts refuses."""
    builds = kernel.module.builds() if kernel.module else []
    told = (beyond(build, kernel.module.name, counted=True) for build in builds)
    return refused(kernel.source) or next(filter(None, told), None)


def beyond(library: Path, name: str, counted: bool = False) -> str | None:
    """A sentence about the first thing that a build calls beyond what it may, or copies uncounted.

    The object says what the source calls; what the linker has added from the compiler's own library is not
    the source's. Where objects are of another kind, as on macOS, nothing is found."""
    made, linked = read_object(library.parent / "kernel.cu.cpp.o"), read_object(library)
    if made is None or linked is None:
        return None
    own = read_object(runtime_library()).gives
    for symbol in sorted(set(made.needs) - own):
        mathematics = MATHEMATICS.fullmatch(symbol) and linked.needs.get(symbol, "").startswith("libm.")
        if not COMPILERS.fullmatch(symbol) and not mathematics:
            return f"`{_plain(symbol)}` may not be called here: it is no function of a GPU."
    if set(made.by_itself) - TRACERS:
        return ("An object with a constructor, or a variable whose first value must be computed, may not be "
                "defined outside a kernel: a GPU runs nothing before the first launch.")
    if line := unhooked(library, linked, name):
        return f"What line {line} loads and stores would be neither counted nor checked."
    printed = (library.parent / PRINTED).read_text(errors="replace")
    if line := next((m["line"] for m in map(DIAGNOSTIC.match, printed.splitlines())
                     if m and m["file"] == name and EMPTY_ARRAY.search(m["message"])), None):
        return (f"The array in line {line} has no size: what is loaded from it would be neither counted nor "
                "checked.")
    return _uncounted(library.parent, made) if counted else None


def _uncounted(folder: Path, made: ObjectFile) -> str | None:
    tool = compiler()
    if tool.clang and tool.release < 16 and "memmove" in made.needs:
        return "This clang does not count what memmove of the C++ library copies: use clang 16 or g++."
    found = uncounted_copy(folder, made)
    return found and (f"{found} is given a struct straight from memory, or its result goes straight there, "
                      "where no copy is counted: use a variable of the kernel's own in between.")


def _plain(symbol: str) -> str:
    """What the source wrote for a symbol: a keyword, or the longest name in a C++ symbol."""
    for begin, word in KEYWORDS.items():
        if symbol.startswith(begin):
            return word
    names, at = [symbol], 0
    while symbol.startswith("_Z") and (number := re.compile(r"\d+").search(symbol, at)):
        at = number.end() + int(number[0])
        names.append(symbol[number.end():at])
    return max(names[1:] or names, key=len)
