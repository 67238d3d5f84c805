"""CUDA C++ into C++ that a CPU compiler takes: launches, `__shared__` and inline PTX change; no line moves.
(A loop without a body gets a call for one: g++ emits no hook there, and no step limit would fire.)

    k<32><<<grid, block>>>(x, n);   ->  laptop::host_launch("k<32>", __LINE__,
                                                            [&](auto... a) { k<32>(a...); },
                                                            laptop::launch_config(grid, block), x, n);
    __shared__ float t[32][33];     ->  typedef float laptop_type_t[32][33];
                                        auto& t = *(laptop_type_t*)laptop::shared("t", __LINE__, ...);
    extern __shared__ float s[];    ->  the same, with laptop::dynamic_shared

The typedef lets the compiler read the declaration: arrays of any dimension, several names, structs and sizes
that depend on a template need nothing from us. What CUDA does not have becomes a `static_assert`
in its place: an error where it is compiled, ignored behind an `#if` that is not."""
import re

from ..text.outline import Function, Outline, outline
from ..text.tokens import Token, match_angle, match_forward, scan
from . import refusals
from .assembly import assembly
from .heap import heap
from .launches import launches, launches_by_function
from .loops import LEFT_EARLY, PASSED_BY, waiting_loops
from .passes import Edits, Part
from .refusals import TYPES, head_words
from .shared_memory import shared_arrays
from .table import LIBRARY

Loops = dict[int, str]           # by id(function): what a plain run may do in place of its body (regions/)
STORAGE = {"static", "inline", "extern", "const", "volatile"}


def rewrite(source: str | Outline, loops: Loops | None = None) -> str:
    """The text, ready for a C++ compiler; line n is still line n."""
    file = source if isinstance(source, Outline) else outline(source)
    edits = edits_of(file)
    for function in file.functions if loops else ():
        if id(function) in loops:
            edits.insert(file.tokens[function.body[0]].end, loops[id(function)], -1)
    return edits.apply(file.text)


def edits_of(file: Outline) -> Edits:
    edits = Edits()
    kernels = {f.name for f in file.functions if "__global__" in f.qualifiers}
    hosts = {f.name for f in file.functions if "__global__" not in f.qualifiers}
    parts = [Part(file.text, file.tokens, file, kernels - hosts, host_only(file))]
    for token in file.tokens:
        if token.kind == "directive" and re.match(r"#\s*define\b", token.text):
            name = re.match(r"#(?:\s|\\\n)*define(?:\s|\\\n)+\w+(?:\([^)]*\))?", token.text)
            if name:
                as_operator(token, edits)
                body = scan(file.text, token.start + name.end(), token.end)
                parts.append(Part(file.text, body, None, kernels - hosts))
    for part in parts:
        for change in PASSES:
            change(part, edits)
    return edits


def as_operator(define: Token, edits: Edits):
    """nvcc takes `#define U #pragma unroll`; a C++ compiler takes the operator alone."""
    if pragma := re.search(r"#\s*pragma\s+(.*)$", define.text[1:], re.DOTALL):
        words = " ".join(pragma[1].replace("\\\n", " ").replace('"', '\\"').split())
        edits.list.append((define.start + 1 + pragma.start(), define.end, 0, f'_Pragma("{words}")'))


def host_only(file: Outline) -> set[str]:
    """Names of functions that nvcc lets no kernel call. Where a macro may hide a `__device__`, it does."""
    def plain(function: Function) -> bool:
        words = [w for w in head_words(file, function) if w not in STORAGE]
        return not function.qualifiers and not function.member and (set(words) <= TYPES or len(words) == 1)
    found = ({f.name for f in file.functions if plain(f)} - LIBRARY
             - {f.name for f in file.functions if not plain(f)})
    return {name for name in found if not re.search(rf"__device__[^;{{}}]*\b{name}\s*\(", file.text)}


def templates_of_templates(part: Part, edits: Edits):
    """cast<T>::to<4>(x): nvcc does without the word `template` in device code, C++ compilers do not."""
    for i in (n for name in part.places for n in part.places[name] if part.file and part.file.owner[n]):
        if part.words(i - 2, i) == [">", "::"] and part.tokens[i + 1].text == "<":
            close = match_angle(part.tokens, i + 1)
            if close and part.tokens[close + 1].text == "(":
                edits.insert(part.tokens[i].start, "template ")


def clocks(part: Part, edits: Edits):
    """The clock of a kernel: C has one of that name, which host code calls."""
    for i in part.all("clock"):
        words = part.words(i - 1, i + 3)
        called = words[2:] == ["(", ")"] and words[0] not in (".", "->", "::")
        if called and part.device_function(i) and not part.own("clock"):
            edits.replace(part.tokens[i], part.tokens[i], "(clock_t)laptop::clock")


def never_inlined(part: Part, edits: Edits):
    """As an attribute: a macro would break <memory>."""
    for i in part.all("__noinline__"):
        if part.tokens[i - 1].text != "(":
            edits.replace(part.tokens[i], part.tokens[i], "__attribute__((noinline))")


def clusters(part: Part, edits: Edits):
    """A kernel with __cluster_dims__ says so as it begins, where its template's parameters are known."""
    for i in part.all("__cluster_dims__") if part.file else ():
        of = next((f for f in part.file.functions if f.first <= i < f.body[0]), None)
        if of:
            sizes = part.piece(i + 2, match_forward(part.tokens, i + 1) - 1)
            edits.insert(part.tokens[of.body[0]].end, f" laptop::cluster_dims({sizes});", -2)


PASSES = [refusals.kernels_that_return, launches, shared_arrays, waiting_loops, never_inlined, heap, clocks,
          assembly, launches_by_function, refusals.kernels_called_as_functions,
          refusals.host_functions_in_kernels, templates_of_templates, refusals.host_words_in_kernels,
          clusters]
