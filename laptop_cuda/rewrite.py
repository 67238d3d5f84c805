"""CUDA C++ into C++ that a CPU compiler takes. Two things change, launches and `__shared__`; no line moves.
(A loop without a body gets a call for one: g++ counts no step where nothing stands, so no limit would end it.)

    k<32><<<grid, block>>>(x, n);      ->  laptop::host_launch("k<32>", __LINE__, [&](auto... a) { k<32>(a...); },
                                                               laptop::launch_config(grid, block), x, n);
    __shared__ float t[32][33];        ->  typedef float laptop_type_t[32][33];
                                           auto& t = *(laptop_type_t*)laptop::shared("t", __LINE__, ...);
    extern __shared__ float s[];       ->  the same, with laptop::dynamic_shared

The typedef lets the compiler read the declaration: arrays of any dimension, several names, structs and sizes
that depend on a template need nothing from us. What CUDA has and this engine does not becomes a `static_assert`
in its place, so that it is reported where it is compiled and ignored behind an `#if` that is not.
"""
import re

from . import ptx
from .table import LIBRARY
from .tokens import (Function, Outline, Token, match_angle, match_angle_backward, match_backward, match_forward,
                     outline, scan, split_commas)

UNSUPPORTED = {
    r"texture": "texture references are not supported; read the array through a pointer",
    r"tex[123]D\w*|tex1Dfetch|cudaTextureObject_t": "textures are not supported; read the array through a pointer",
    r"surf[123]D\w*|cudaSurfaceObject_t": "surfaces are not supported; write the array through a pointer",
    r"__cluster_dims__|__block_size__": "thread block clusters are not supported",
    r"CUtensorMap|cuTensorMap\w+|cp_async_bulk\w*": "TMA (bulk tensor copies) is not supported",
    r"wgmma\w*|tcgen05\w*": "warp-group matrix instructions are not supported",
    r"wmma": "tensor-core fragments (nvcuda::wmma) are not supported",
}
STATEMENT_END = {";", "{", "}"}
TYPES = {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "size_t"}
STORAGE = {"static", "inline", "extern", "const", "volatile"}
HOST_CLASSES = {"cout", "cerr", "vector", "string", "map"}
# words that are not for kernels, each with the start of the next token; `new (place) T` asks for no heap
HOST_WORDS = {
    r"(malloc|calloc|realloc) \(|new [^(]": "a heap in a kernel is not supported; use a local array, or an array from Python",
    r"(throw|try) ": "a kernel has no exceptions; use assert, or write an error code to an array",
    r"(fprintf|puts|putchar|fputs) \(": "it is a function of the host; use printf",
    r"(terminate|raise|_exit|_Exit|quick_exit) \(": "it is a function of the host; use assert",
}
DROPPED = {"__shared__", "static", "extern", "inline"}
ALIGNMENT = {"alignas", "__align__", "__attribute__"}


class Edits:
    """Replacements in a text, by position; none overlaps another."""

    def __init__(self):
        self.list: list[tuple[int, int, int, str]] = []

    def insert(self, position: int, text: str, order: int = 0):
        self.list.append((position, position, order, text))

    def replace(self, start: int, end: int, text: str):
        self.list.append((start, end, 0, text))

    def apply(self, text: str) -> str:
        pieces, position = [], 0
        for start, end, _, new in sorted(self.list, key=lambda e: (e[0], e[2], e[1])):
            pieces += [text[position:start], new]
            position = end
        return "".join(pieces) + text[position:]


def rewrite(source: str | Outline) -> str:
    """The text, ready for a C++ compiler; line n is still line n."""
    file = source if isinstance(source, Outline) else outline(source)
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
    return edits.apply(file.text)


def head_words(file: Outline, function: Function) -> list[str]:
    """What stands before a function's name, template parameters aside: its qualifiers and its return type."""
    first = function.template[1] + 1 if function.template else function.first
    return [t.text for t in file.tokens[first:function.parameters[0] - 1] if t.kind == "name"]


def host_only(file: Outline) -> set[str]:
    """Names of the functions that nvcc would not let a kernel call. Where a macro may hide a `__device__`, it does."""
    def plain(function: Function) -> bool:
        words = [w for w in head_words(file, function) if w not in STORAGE]
        return not function.qualifiers and not function.member and (set(words) <= TYPES or len(words) == 1)
    found = {f.name for f in file.functions if plain(f)} - {f.name for f in file.functions if not plain(f)} - LIBRARY
    return {name for name in found if not re.search(rf"__device__[^;{{}}]*\b{name}\s*\(", file.text)}


class Rewriter:
    """One pass over the tokens of a file, or of the body of one macro (`file` is None then)."""

    def __init__(self, text: str, tokens: list[Token], edits: Edits, file: Outline | None, kernels: set[str],
                 host_only: set[str] = frozenset()):
        self.text, self.tokens, self.edits, self.file = text, tokens, edits, file
        self.kernels, self.host_only = kernels, host_only
        self.rejected: set[int] = set()
        self.tails: set[int] = set()         # each `while` that ends a `do`

    def run(self):
        for function in self.file.functions if self.file else ():
            words = set(head_words(self.file, function))
            if "__global__" in words and words & TYPES and "void" not in words:
                self.reject(function.parameters[0] - 1, "a kernel returns void; write its result through a pointer")
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
                self.edits.replace(token.start, token.end, "__attribute__((noinline))")   # a macro would break <memory>
            elif token.text in ("asm", "__asm__", "__asm"):
                self.assembly(i)
            elif token.text in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel"):
                self.launch_by_function(i)
            elif token.text in self.kernels:
                self.called_as_a_function(i)
            elif token.text in self.host_only:
                self.called_from_a_kernel(i)
            elif token.text == "std":
                self.of_the_host(i)
            else:
                self.unsupported(i)

    # ---- launches

    def launch(self, opening: int):
        begin = self.callee_start(opening)
        end = self.configuration_end(opening)
        if begin is None or end is None:
            return
        after = end + 3                       # the "(" of the arguments
        if after >= len(self.tokens) or self.tokens[after].text != "(":
            return
        if self.device_function(opening):
            self.reject(opening, "a kernel launched from device code (dynamic parallelism) is not supported")
        first, last = self.tokens[begin].start, self.tokens[opening - 1].end
        callee = re.sub(r"\s+", " ", self.text[first:last].replace("\\\n", " "))
        quoted = callee.replace("\\", "\\\\").replace('"', '\\"')
        self.edits.insert(first, f'laptop::host_launch("{quoted}", __LINE__, [&](auto... laptop_args) {{ ')
        self.edits.replace(self.tokens[opening].start, self.tokens[opening].end,
                           "(laptop_args...); }, laptop::launch_config(")
        empty = match_forward(self.tokens, after) == after + 1
        self.edits.replace(self.tokens[end].start, self.tokens[end + 2].end, ")")
        self.edits.replace(self.tokens[after].start, self.tokens[after].end, "" if empty else ", ")
        for i in range(after, match_forward(self.tokens, after)):
            if self.tokens[i].text == "NULL":    # an integer once it is an argument of a template
                self.edits.replace(self.tokens[i].start, self.tokens[i].end, "nullptr")

    def callee_start(self, opening: int) -> int | None:
        """The first token of the expression before `<<<`: k, ns::k<T>, object.k, table[i], (choose(n))."""
        i = opening - 1
        if i < 0:
            return None
        while True:
            text = self.tokens[i].text
            if text == ">":
                i = match_angle_backward(self.tokens, i)
                if not i:
                    return None
                i -= 1
                continue
            if text in (")", "]"):
                i = match_backward(self.tokens, i)
                before = self.tokens[i - 1] if i else None
                if before and (before.kind == "name" and before.text != "return" or before.text in ("]", ")")):
                    i -= 1
                    continue
            elif self.tokens[i].kind != "name":
                return None
            if i and self.tokens[i - 1].text == "template":
                i -= 1
            if i > 1 and self.tokens[i - 1].text in (".", "->", "::"):
                if self.tokens[i - 2].kind == "name" or self.tokens[i - 2].text in (">", ")", "]"):
                    i -= 2
                    continue
                i -= 1
            elif i == 1 and self.tokens[0].text == "::":
                i = 0
            return i

    def configuration_end(self, opening: int) -> int | None:
        """The first of the three ">" that close a launch configuration."""
        i = opening + 1
        while i + 2 < len(self.tokens):
            text = self.tokens[i].text
            if text in ("(", "[", "{"):
                i = match_forward(self.tokens, i)
            elif text == ";":
                return None
            elif text == ">" and [t.text for t in self.tokens[i:i + 4]] in ([">", ">", ">"], [">", ">", ">", "("]):
                if self.tokens[i + 2].end - self.tokens[i].start == 3:
                    return i
            i += 1
        return None

    def launch_by_function(self, index: int):
        """Give cudaLaunchKernel(f, ...) the kernel's name, and its type: a cast to void* would hide it."""
        opening = index + 1
        if opening + 1 >= len(self.tokens) or self.tokens[opening].text != "(":
            return
        first = opening + 1
        if self.tokens[first].text == "(":
            close = match_forward(self.tokens, first)
            if {t.text for t in self.tokens[first + 1:close]} <= {"const", "void", "*"}:
                self.edits.replace(self.tokens[first].start, self.tokens[close].end, "")
                first = close + 1
        pieces = split_commas(self.tokens, first, match_forward(self.tokens, opening))
        name = self.piece(first, pieces[0][1] - 1) if pieces else ""
        self.edits.replace(self.tokens[index].start, self.tokens[index].end, "laptop::launch_kernel")
        self.edits.insert(self.tokens[opening].end, f'"{name.lstrip("&")}", ', -1)

    # ---- loops

    def loop(self, index: int):
        """Give an empty body its call, a step with a line of its own."""
        if index in self.tails:
            return
        body = index + 1
        if self.tokens[index].text == "do":
            tail = body
            while tail < len(self.tokens) and self.tokens[tail].text != "while":
                tail = match_forward(self.tokens, tail) + 1 if self.tokens[tail].text in ("(", "[", "{") else tail + 1
            self.tails.add(tail)
        else:
            body = match_forward(self.tokens, body) + 1
        words = [t.text for t in self.tokens[body:body + 2]]
        if words[:1] == [";"]:
            self.edits.insert(self.tokens[body].start, "laptop::turn()")
        elif words == ["{", "}"]:
            self.edits.insert(self.tokens[body + 1].start, "laptop::turn();")

    # ---- shared memory

    def shared(self, index: int):
        first, last = self.statement(index)
        words = {self.tokens[i].text for i in range(first, last)}
        external, at_top = "extern" in words, self.file is not None and self.file.namespace[index] is not None
        alignments, drop, i = [], set(), first
        while i < last:
            token = self.tokens[i]
            if token.kind == "name" and token.text in DROPPED:
                drop.add(i)
            elif token.kind == "name" and token.text in ALIGNMENT:
                close = match_forward(self.tokens, i + 1)
                alignment = re.search(r"aligned\s*\((.*)\)\s*\)\s*\)", self.piece(i, close), re.DOTALL)
                alignments.append(alignment.group(1) if alignment else self.piece(i + 2, close - 1))
                drop.update(range(i, close + 1))
                i = close
            elif token.text in ("(", "[", "{"):
                i = match_forward(self.tokens, i)
            i += 1
        rest = [i for i in range(first, last) if i not in drop]
        names, fault = self.declared_names(rest)
        if fault:
            self.reject(index, fault)
            return
        for i in drop:
            self.edits.replace(self.tokens[i].start, self.tokens[i].end, self.newlines(i))
        self.edits.insert(self.tokens[first].start, "typedef ", -1)
        new = "" if last < len(self.tokens) else ";"
        place = self.tokens[last].end if last < len(self.tokens) else self.tokens[last - 1].end
        local = ""
        for i in names:
            name = self.tokens[i].text
            self.edits.replace(self.tokens[i].start, self.tokens[i].end, f"laptop_type_{name}")
            array = self.tokens[min(i + 1, len(self.tokens) - 1)].text == "["
            local += self.reference(name, alignments, external, at_top, array)
        if at_top:
            self.inject([self.tokens[i].text for i in names], local, index)
        else:
            self.edits.insert(place, new + local)

    def reference(self, name: str, alignments: list[str], external: bool, at_top: bool, array: bool) -> str:
        kind = f"laptop_type_{name}"
        if external:
            element = f"sizeof((*({kind}*)0)[0])" if array else f"sizeof({kind})"
            return f' auto& {name} = *({kind}*)laptop::dynamic_shared("{name}", {element});'
        align, helpers = f"alignof({kind})", ""
        for n, alignment in enumerate(alignments):
            asked = f"laptop_align_{name}_{n}"
            helpers += f" struct alignas({alignment}) {asked} {{}};"
            align = f"({align} > alignof({asked}) ? {align} : alignof({asked}))"
        line, function = ("0", '""') if at_top else ("__LINE__", "__PRETTY_FUNCTION__")
        return (f'{helpers} auto& {name} = *({kind}*)laptop::shared("{name}", {line}, sizeof({kind}), '
                f"{align}, {function});")

    def inject(self, names: list[str], local: str, index: int):
        """A shared array declared outside all functions is declared again in each function that uses it."""
        for function in self.file.functions:
            if function.body[0] < index:
                continue
            begin, end = function.parameters[0], function.body[1]
            used = {t.text for t in self.tokens[begin:end] if t.kind == "name"}
            again = any(self.tokens[i].text == "__shared__" and names[0] in self.piece(i, self.statement(i)[1])
                        for i in range(*function.body))
            if used & set(names) and not again:
                self.edits.insert(self.tokens[function.body[0]].end, local)

    def declared_names(self, rest: list[int]) -> tuple[list[int], str | None]:
        """The tokens that name the variables of a declaration, from the tokens of the declaration."""
        tokens = [self.tokens[i] for i in rest]
        names = []
        for begin, end in split_commas(tokens, 0, len(tokens)):
            found, i = None, begin
            while i < end:
                text = tokens[i].text
                if tokens[i].kind == "name":
                    found = i
                elif text == "<" and found is not None:
                    i = match_angle(tokens, i) or i
                elif text == "(" and found is not None and tokens[i + 1].text == "*":
                    found = next(n for n in range(i, end) if tokens[n].kind == "name")
                    break
                elif text == "{" and {"struct", "union", "class"} & {t.text for t in tokens[begin:i]}:
                    i = match_forward(tokens, i)
                elif text == "[":
                    i = match_forward(tokens, i)
                elif text in ("=", "(", "{"):
                    return [], "a __shared__ variable cannot have an initial value; store to it, then synchronise"
                i += 1
            if found is None:
                return [], "this __shared__ declaration is not understood"
            names.append(rest[found])
        return names, None

    def statement(self, index: int) -> tuple[int, int]:
        """The first token of the declaration around `index`, and its ";" (or one past the end of a macro)."""
        first = index
        while first > 0:
            before = self.tokens[first - 1]
            if before.text == ")":
                opening = match_backward(self.tokens, first - 1)
                if opening == 0 or self.tokens[opening - 1].text not in ALIGNMENT | {"decltype"}:
                    break
                first = opening - 1
                continue
            if before.kind == "directive" or before.text in STATEMENT_END | {":", "\\"}:
                break
            first -= 1
        last = index
        while last < len(self.tokens) and self.tokens[last].text != ";":
            last = match_forward(self.tokens, last) if self.tokens[last].text in ("(", "[", "{") else last
            last += 1
        return first, last

    # ---- what there is not

    def assembly(self, index: int):
        """Inline PTX becomes calls (ptx.py). Assembly of the host's processor stays."""
        near = range(index, min(index + 4, len(self.tokens)))
        opening = next((i for i in near if self.tokens[i].text == "("), None)
        if opening is None:
            return
        closing = match_forward(self.tokens, opening)
        template, outputs, inputs = self.asm_parts(opening, closing)
        made = ptx.statement(template, outputs, inputs)
        owner = self.file.owner[index] if self.file else None
        if "unknown(" in made and owner and not owner.qualifiers and not owner.member:
            return
        start, end = self.tokens[index].start, self.tokens[closing].end
        lines = self.text.count("\n", start, end)
        self.edits.replace(start, end, made + ("\n" if self.file else "\\\n") * lines)

    def asm_parts(self, opening: int, closing: int) -> tuple[str, list[ptx.Operand], list[ptx.Operand]]:
        """The text of an asm statement, its outputs and its inputs."""
        sections, i = [[]], opening + 1
        while i < closing:
            text = self.tokens[i].text
            if self.tokens[i].kind == "symbol" and text in (":", "::"):
                sections += [[] for _ in text]
            else:
                last = match_forward(self.tokens, i) if text in ("(", "[") else i
                sections[-1] += range(i, last + 1)
                i = last
            i += 1
        strings = [self.tokens[n] for n in sections[0]]
        template = "".join(ptx.unquoted(t.text) if t.kind == "string" else f" {t.text} " for t in strings)
        return template, *(self.asm_operands(section) for section in (sections + [[], []])[1:3])

    def asm_operands(self, section: list[int]) -> list[ptx.Operand]:
        found = []
        for n, i in enumerate(section):
            if self.tokens[i].kind == "string" and n + 1 < len(section) and self.tokens[i + 1].text == "(":
                last = match_forward(self.tokens, i + 1)
                named = n >= 3 and self.tokens[i - 1].text == "]" and self.tokens[i - 3].text == "["
                text = re.sub(r"\\?\s*\n", " ", self.piece(i + 2, last - 1))
                name = self.tokens[i - 2].text if named else ""
                found.append(ptx.Operand(name, ptx.unquoted(self.tokens[i].text), text))
        return found

    def called_as_a_function(self, index: int):
        owner = self.file.owner[index] if self.file else None
        if not owner or not owner.body[0] < index < owner.body[1]:
            return
        before = self.tokens[index - 1].text
        after = index + 1
        if self.tokens[after].text == "<":
            close = match_angle(self.tokens, after)
            after = close + 1 if close else after
        if before in STATEMENT_END | {")", "else"} and self.tokens[after].text == "(":
            name = self.tokens[index].text
            self.reject(index, f"kernel {name} is called without <<<grid, block>>>")

    def device_function(self, index: int) -> Function | None:
        """The function around a token, if it runs on the device only."""
        owner = self.file.owner[index] if self.file else None
        on_device = owner and owner.qualifiers & {"__global__", "__device__"} and "__host__" not in owner.qualifiers
        return owner if on_device else None

    def of_the_host(self, index: int):
        words = [t.text for t in self.tokens[index:index + 3]]
        if words[1:2] == ["::"] and words[2] in HOST_CLASSES and self.device_function(index):
            instead = "use printf" if words[2] in ("cout", "cerr") else "use an array"
            self.reject(index, f"std::{words[2]} is of the host, and not to be had in a kernel; {instead}")

    def called_from_a_kernel(self, index: int):
        """A call of a host function; a variable of the same name, a lambda say, is none."""
        owner, name = self.device_function(index), self.tokens[index].text
        if not owner:
            return
        own = [i for i in range(owner.parameters[0], owner.body[1]) if self.tokens[i].text == name]
        if all(self.tokens[i + 1].text in ("(", "<") and self.tokens[i - 1].text not in (".", "->", "::")
               and (self.tokens[i - 1].kind != "name" or self.tokens[i - 1].text in ("return", "else")) for i in own):
            self.reject(index, f"{name} is a function of the host; with __device__ before it, a kernel may call it")

    def unsupported(self, index: int):
        word = self.tokens[index].text
        owner = self.device_function(index)
        if (owner and owner.body[0] < index < owner.body[1] and self.tokens[index - 1].text not in (".", "->")
                and word not in {f.name for f in self.file.functions}):
            after = f"{word} {self.tokens[index + 1].text}"
            for pattern, sentence in HOST_WORDS.items():
                if re.match(pattern, after):
                    self.reject(index, f"{word}: {sentence}")
        for pattern, sentence in UNSUPPORTED.items():
            if not re.fullmatch(pattern, word):
                continue
            if word == "texture" and self.tokens[min(index + 1, len(self.tokens) - 1)].text != "<":
                continue
            self.reject(index, sentence)

    def reject(self, index: int, sentence: str):
        """A static_assert before the statement (or the function head) that holds token `index`."""
        parens = 0
        first = index
        while first > 0:
            before = self.tokens[first - 1]
            if before.text in (")", "]"):
                first = match_backward(self.tokens, first - 1)
                continue
            if before.text in ("(", "["):
                parens += 1
            elif before.kind == "directive" or before.text in STATEMENT_END and not self.in_parentheses(first - 1):
                break
            first -= 1
        if first in self.rejected:
            return
        self.rejected.add(first)
        message = sentence.replace('"', "'")
        self.edits.insert(self.tokens[first].start, f'static_assert(false, "laptop: {message}"); ', -2)

    def in_parentheses(self, index: int) -> bool:
        """Whether the ";" at `index` is one of a for(;;)."""
        if self.tokens[index].text != ";":
            return False
        i = index - 1
        while i >= 0 and self.tokens[i].text not in ("{", "}") and index - i < 60:
            if self.tokens[i].text in (")", "]"):
                i = match_backward(self.tokens, i)
            elif self.tokens[i].text == "(":
                return True
            i -= 1
        return False

    # ---- text

    def piece(self, first: int, last: int) -> str:
        if first > last or first >= len(self.tokens):
            return ""
        return self.text[self.tokens[first].start:self.tokens[min(last, len(self.tokens) - 1)].end]

    def newlines(self, index: int) -> str:
        return "\n" * self.tokens[index].text.count("\n")
