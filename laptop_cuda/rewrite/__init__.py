"""CUDA C++ into C++ that a CPU compiler takes: launches, `__shared__` and inline PTX change; no line moves.
(A loop without a body gets a call for one: g++ emits no hook for an empty body, so the step limit would
never fire.)

    k<32><<<grid, block>>>(x, n);   ->  laptop::host_launch("k<32>", __LINE__,
                                                            [&](auto... a) { k<32>(a...); },
                                                            laptop::launch_config(grid, block), x, n);
    __shared__ float t[32][33];     ->  typedef float laptop_type_t[32][33];
                                        auto& t = *(laptop_type_t*)laptop::shared("t", __LINE__, ...);
    extern __shared__ float s[];    ->  the same, with laptop::dynamic_shared

The typedef lets the compiler read the declaration: arrays of any dimension, several names, structs and sizes
that depend on a template need nothing from us. What CUDA does not have becomes a `static_assert`
in its place: an error where it is compiled, ignored behind an `#if` that is not.
"""
from __future__ import annotations

import re

from ..text.outline import Function, Outline, outline
from ..text.tokens import match_angle, match_forward, scan
from .assembly import Assembly
from .heap import Heap
from .launches import BY_FUNCTION, Launches
from .passes import Edits
from .refusals import Refusals
from .shared_memory import SharedArrays
from .table import LIBRARY

TYPES = {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "size_t"}
LEFT_EARLY = " laptop::left_early()"
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
    Rewriter(file.text, file.tokens, edits, file, kernels - hosts, host_only(file)).run()
    for token in file.tokens:
        if token.kind == "directive" and re.match(r"#\s*define\b", token.text):
            name = re.match(r"#(?:\s|\\\n)*define(?:\s|\\\n)+\w+(?:\([^)]*\))?", token.text)
            if name:
                body = scan(file.text, token.start + name.end(), token.end)
                Rewriter(file.text, body, edits, None, kernels - hosts).run()
    return edits


def head_words(file: Outline, function: Function) -> list[str]:
    """The words before a function's name, template parameters aside: its qualifiers and its return type."""
    first = function.template[1] + 1 if function.template else function.first
    return [t.text for t in file.tokens[first:function.parameters[0] - 1] if t.kind == "name"]


def host_only(file: Outline) -> set[str]:
    """Names of the functions that nvcc would not let a kernel call. Where a macro may hide a `__device__`,
    it does."""
    def plain(function: Function) -> bool:
        words = [w for w in head_words(file, function) if w not in STORAGE]
        return not function.qualifiers and not function.member and (set(words) <= TYPES or len(words) == 1)
    found = ({f.name for f in file.functions if plain(f)} - {f.name for f in file.functions if not plain(f)}
             - LIBRARY)
    return {name for name in found if not re.search(rf"__device__[^;{{}}]*\b{name}\s*\(", file.text)}


class Rewriter(Launches, SharedArrays, Assembly, Heap, Refusals):
    """One pass over the tokens of a file, or of the body of one macro."""

    def run(self):
        for function in self.file.functions if self.file else ():
            words = set(head_words(self.file, function))
            if "__global__" in words and words & TYPES and "void" not in words:
                self.reject(function.parameters[0] - 1,
                            "a kernel returns void; write its result through a pointer")
        for i, token in enumerate(self.tokens):
            if token.kind == "symbol" and token.text == "<<<":
                self.launch(i)
            elif token.kind != "name":
                continue
            elif token.text == "__shared__":
                self.shared(i)
            elif token.text in ("while", "for", "do"):
                self.loop(i)
            elif token.text == "__noinline__" and self.tokens[i - 1].text != "(":
                # a macro would break <memory>
                self.edits.replace(token.start, token.end, "__attribute__((noinline))")
            elif token.text in ("malloc", "free", "new", "delete"):
                self.heap(i)
            elif token.text == "clock":
                self.clock(i)
            elif token.text in ("asm", "__asm__", "__asm"):
                self.assembly(i)
            elif token.text in BY_FUNCTION:
                self.launch_by_function(i)
            elif token.text in self.kernels:
                self.called_as_a_function(i)
            elif token.text in self.host_only:
                self.called_from_a_kernel(i)
            elif self.tokens[i - 1].text == "::" and self.tokens[i - 2].text == ">":
                self.template_of_a_template(i)
            elif token.text == "std":
                self.of_the_host(i)
            else:
                self.word_of_the_host(i)

    def template_of_a_template(self, index: int):
        """cast<T>::to<4>(x): nvcc does without the word `template` in device code, C++ compilers do not."""
        opening = index + 1
        if not self.file or not self.file.owner[index] or self.tokens[opening].text != "<":
            return
        close = match_angle(self.tokens, opening)
        if close and self.tokens[close + 1].text == "(":
            self.edits.insert(self.tokens[index].start, "template ")

    def clock(self, index: int):
        """The clock of a kernel: C has one of that name, which host code calls."""
        words = [t.text for t in self.tokens[index - 1:index + 3]]
        called = words[2:] == ["(", ")"] and words[0] not in (".", "->", "::")
        if called and self.device_function(index) and "clock" not in {f.name for f in self.file.functions}:
            self.edits.replace(self.tokens[index].start, self.tokens[index].end, "(clock_t)laptop::clock")

    def returns_within(self, body: int):
        """Announce a `return` in a kernel's loop: its thread has not gone past the barriers there."""
        if body >= len(self.tokens) or self.tokens[body].text != "{" or not self.file:
            return
        owner = self.file.owner[body]
        if not owner or "__global__" not in owner.qualifiers:
            return
        for i in range(body, match_forward(self.tokens, body)):
            if self.tokens[i].text == "return" and self.tokens[i + 1].text == ";" and i not in self.returns:
                self.returns.add(i)
                self.edits.insert(self.tokens[i].end, LEFT_EARLY)

    def loop(self, index: int):
        """Give an empty body its call, a step with a line of its own."""
        if index in self.tails:
            return
        body = index + 1
        if self.tokens[index].text == "do":
            tail = body
            while tail < len(self.tokens) and self.tokens[tail].text != "while":
                tail = (match_forward(self.tokens, tail) + 1 if self.tokens[tail].text in ("(", "[", "{")
                        else tail + 1)
            self.tails.add(tail)
        else:
            body = match_forward(self.tokens, body) + 1
        self.returns_within(body)
        words = [t.text for t in self.tokens[body:body + 2]]
        if words[:1] == [";"]:
            self.edits.insert(self.tokens[body].start, "laptop::turn()")
        elif words == ["{", "}"]:
            self.edits.insert(self.tokens[body + 1].start, "laptop::turn();")
