"""Whether a kernel may run as loops over its threads from barrier to barrier, as `regions/` writes them.

It may if all its threads take the same way through its barriers, which must show in the text, and if it calls
nothing that knows of other threads. What is not understood is refused: fibers run it."""
import re

from ..rewrite.table import LIBRARY, constants, symbols
from ..text.outline import Function, Outline
from ..text.statements import SCALAR, Statement, assigned, counts, names_one, statement, volatile
from ..text.tokens import match_angle_backward, match_backward, scan

BARRIER = "__syncthreads"
GROUP = re.compile(r"(?:const )?(?:auto|(?:\w+ :: )?thread_block) (\w+) = "
                   r"(?:\w+ :: )?this_thread_block \( \) ;")
WARP_BARRIER = "__syncwarp"
# a function of each_thread.h for each; without a mask, as before CUDA 9, the lanes that are there are meant
SHUFFLES = {f"__shfl{way}{mask}": f"laptop_take{way}" for way in ("", "_up", "_down", "_xor")
            for mask in ("_sync", "")}
CONTROL = {"if", "for", "while", "switch", "return", "sizeof", "alignof", "decltype", "static_assert",
           "constexpr"}
TYPES = {"float", "double", "int", "unsigned", "long", "short", "char", "bool", "size_t", "half",
         "__nv_bfloat16"}
BUILT_IN = {"threadIdx", "blockIdx", "blockDim", "gridDim"}
CASTS = {"static_cast", "reinterpret_cast", "const_cast", "min", "max"}
CALLS = re.compile(
    r"curand\w*|u?(?:ll)?m(?:in|ax)|"
    r"(?:__)?(?:f?min|f?max|fma|rsqrt|rcbrt|fdividef|exp10|sinpi|cospi|normcdf|erfc?inv|sincos|saturate)f?"
    r"|__(?:exp|exp10|log|log2|log10|sin|cos|tan|pow|fdivide|saturate)f"
    r"|__[fd](?:add|sub|mul|div|maf|rcp|sqrt|ma)_r[nzud]|__u?mul(?:hi|24)|__ll2\w+|u?(?:int|long)_as_\w+"
    r"|__(?:float|int|uint|double|half|bfloat16|ushort|short)2?\w*_as_\w+"
    r"|__(?:float|int|uint|double|half|bfloat16|ushort|short)2\w+|__u?int_as_float|__popc(?:ll)?|__clz(?:ll)?"
    r"|__ffs(?:ll)?|__brev(?:ll)?|__ld(?:g|ca|cg|cs|lu|cv)|__st(?:wb|cg|cs|wt)"
    r"|make_(?:float|int|uint|double|char|uchar|short|ushort|long|ulong)[1-4]"
    r"|atomic(?:Add|Sub|Min|Max|And|Or|Xor|Inc|Dec)|__threadfence(?:_block|_system)?"
    r"|(?:tex|surf)(?:[123]D|Cubemap)\w*")
# By these blocks may agree with each other, so that their order must stay as it is; so they may by a variable
# of the device, and a function that asks for its block gets the one of the launch's first core. Random
# generators make their tables at the first call, and fetches look their images up.
OF_OTHER_BLOCKS = re.compile(r"volatile|atomic\w*|__threadfence\w*|__ldc[vg]|__st(?:wt|cg)|curand\w*"
                             r"|(?:tex|surf)(?:[123]D|Cubemap)\w*")
FORBIDDEN = {"goto", "asm", "__asm__", "__asm", "static", "thread_local", "try", "catch", "throw", "new",
             "delete", "typeid", "setjmp", "cooperative_groups", "cg", "std", "using", "namespace",
             "operator", "this", "<<<"}


class Refused(Exception):
    """This kernel stays with fibers."""


class Checker:
    """The calls and names of a kernel of `file`; `files` are that file and those that it includes."""

    def __init__(self, files: list[Outline], file: Outline, kernel: Function):
        self.files, self.file, self.kernel, self.tokens = files, file, kernel, file.tokens
        self.functions = [(f, function) for f in files for function in f.functions]
        self.macros = {m.group(1): m.group(2) for f in files for t in f.tokens if t.kind == "directive"
                       and (m := re.match(r"#\s*define\s+(\w+)(.*)$", t.text, re.DOTALL))}
        self.volatile = set().union(*(volatile(f.tokens) for f in files))
        self.own: set[str] = set()           # variables that each thread has for itself
        self.groups: dict[str, tuple[int, int]] = {}     # each name of the block: its declaration, in tokens
        self.barriers: dict[int, int] = {}   # the first token of each barrier, and the one behind it
        self.named: set[str] = set()         # all words of the kernel
        self.named_by_helpers: set[str] = set()          # and of the functions that it may call
        self.find_barriers()
        self.constant = {c[0] for f in files for c in constants(f)} | set(_template_names(file, kernel))

    def find_barriers(self) -> None:
        """__syncthreads(), or that of cooperative groups: cta.sync(), sync(cta)."""
        tokens, (first, last) = self.tokens, self.kernel.body
        for i in range(first, last):
            if tokens[i].text == "this_thread_block":
                begin = next(k for k in range(i, first - 1, -1) if tokens[k].text in ";{}") + 1
                if found := GROUP.fullmatch(" ".join(t.text for t in tokens[begin:i + 4])):
                    self.groups[found[1]] = begin, i + 4
        for i in range(first, last):
            before, words = tokens[i - 1].text, [t.text for t in tokens[i:i + 4]]
            if words[0] == BARRIER:
                self.barriers[i] = i + 3
            elif words[:3] == ["sync", "(", ")"] and before == "." and tokens[i - 2].text in self.groups:
                self.barriers[i - 2] = i + 3
            elif words[:2] == ["sync", "("] and words[2] in self.groups and words[3] == ")":
                self.barriers[i - 2 if before == "::" else i] = i + 4

    def of_group(self, i: int) -> bool:
        """Whether token i is part of a barrier, or of a declaration that only barriers need."""
        return any(a <= i < b for a, b in [*self.barriers.items(), *self.groups.values()])

    def body(self) -> None:
        """Refuses a body that calls, or names, what loops over threads cannot have."""
        first, last = self.kernel.body
        if any(self.file.conditions[i] != self.kernel.conditions for i in range(first, last)):
            raise Refused("an #if inside")
        for i in range(first, last - 3):
            a, b, c, d = self.tokens[i:i + 4]
            if a.kind == "name" and b.text == "&" and c.kind == "name" and d.text in ("=", ":"):
                raise Refused("a second name for a variable")
        self.span(self.file, first + 1, last, ())
        self.named |= {t.text for t in self.tokens[self.kernel.first:last]}

    def blocks_apart(self) -> bool:
        """Whether blocks, once `body` has found nothing, share plain global memory only."""
        unseen = {t.text for f in self.files for t, owner in zip(f.tokens, f.owner)
                  if owner is None or owner.member or not owner.name.isidentifier()
                  or f.tokens[owner.parameters[0] - 2].text == "::"}
        if "blockIdx" in self.named_by_helpers | unseen:
            return False
        variables = {name for f in self.files for name, _, _ in symbols(f, ("__device__", "__managed__"))}
        words = self.named | self.named_by_helpers
        return not words & variables and not any(map(OF_OTHER_BLOCKS.fullmatch, words | unseen))

    def span(self, file: Outline, first: int, last: int, seen: tuple) -> None:
        self.words(file.tokens, first, last, file, seen)

    def words(self, tokens: list, first: int, last: int, file: Outline | None, seen: tuple) -> None:
        for i in range(first, last):
            token = tokens[i]
            if not seen and self.of_group(i):
                continue
            group = not seen and token.text in self.groups
            if token.kind == "directive" or group or token.text in FORBIDDEN or (
                    seen and token.text == "__shared__"):
                raise Refused(token.text)
            if token.kind == "name" and token.text in self.macros and token.text not in seen:
                body = self.macros[token.text]
                made = scan(re.sub(r"^\([^)]*\)", "", body))
                (self.named_by_helpers if seen else self.named).update(t.text for t in made)
                if any(t.text in (";", "{", "}", BARRIER) for t in made):
                    raise Refused(f"the macro {token.text}")
                self.words(made, 0, len(made), None, (*seen, token.text))
            elif token.text in ("while", "do", "for"):
                self.waits(tokens, i, last)
            elif token.text == "(":
                self.call(tokens, i, seen)
            elif token.text == "[" and (i == 0 or tokens[i - 1].kind == "symbol"
                                        and tokens[i - 1].text not in ("]", ")")):
                raise Refused("a lambda")
            elif token.text in BUILT_IN and tokens[i - 1].text == "::":
                raise Refused("::" + token.text)

    def waits(self, tokens: list, i: int, last: int) -> None:
        """Refuses a loop that may last until another thread has its turn; a lock's atomics are not known."""
        made = statement(tokens, i, last)
        counted = counts(tokens, i)
        end = made.header[1] if counted else made.last
        body = "".join(t.text for t in tokens[made.header[1] if made.kind == "while" else i + 1:made.last])
        empty = not counted and (body.lstrip(")") in (";", "{}") or body.startswith(("{}", ";while")))
        atomic = any(t.text.startswith("atomic") for t in tokens[made.first:end])
        if empty or atomic or names_one(tokens, made.first, end, self.volatile):
            raise Refused("a loop that may wait")

    def call(self, tokens: list, i: int, seen: tuple) -> None:
        """The "(" at token i."""
        before = tokens[i - 1] if i else None
        if before is None or before.kind == "symbol" and before.text not in (">", ")", "]"):
            return                           # of an expression
        opening = match_backward(tokens, i - 1) if before.text == ")" else i
        if before.text == "]" or before.text == ")" and tokens[opening + 1].text in ("*", "&"):
            raise Refused("a call through a pointer")
        if before.text == ")":
            return                           # of a cast, or of the statement behind an if ( )
        name = before
        if before.text == ">":
            opening = match_angle_backward(tokens, i - 1)
            if opening is None:
                return                       # a > (b)
            name = tokens[opening - 1]
        place = tokens.index(name, max(0, i - 200), i) if name is not before else i - 1
        if tokens[place - 1].text in (".", "->", "::"):
            raise Refused(f"{tokens[place - 1].text}{name.text}()")
        self.function(name.text, seen)

    def function(self, name: str, seen: tuple) -> None:
        own = [(file, f) for file, f in self.functions if f.name == name]
        known = (name in CONTROL | TYPES | CASTS | LIBRARY or name.removesuffix("f") in LIBRARY
                 or not seen and name in {BARRIER, WARP_BARRIER, *SHUFFLES} or CALLS.fullmatch(name))
        if not own and not known and name not in self.macros:
            raise Refused(f"{name}()")
        for file, f in own:
            if name in seen:
                continue
            words = {t.text for t in file.tokens[f.first:f.body[1]]}
            if words & {"threadIdx", "__shared__", "__global__", BARRIER} or f.member:
                raise Refused(f"{name}() knows of threads")
            self.named_by_helpers |= words
            self.span(file, f.body[0] + 1, f.body[1], (*seen, name))

    def holds_barrier(self, made: Statement) -> bool:
        return any(made.first <= i < made.last for i in self.barriers)

    def is_barrier(self, made: Statement) -> bool:
        return self.barriers.get(made.first) == made.last - 1 and made.kind == "simple"

    def uniform(self, first: int, last: int, names: set[str]) -> bool:
        """Whether an expression has one value for the block; `names` are the variables that have."""
        for i in range(first, last):
            token, before = self.tokens[i], self.tokens[i - 1].text
            if token.text in ("[", "->", "{", "?") or token.kind in ("string", "directive"):
                return False
            of_symbol = self.tokens[i - 1].kind == "symbol" and before not in (")", "]")
            if token.text == "*" and (i == first or of_symbol):
                return False
            if token.text in self.own and before != ".":
                return False
            if token.kind == "name" and before != "." and not (
                    token.text in names | self.constant | BUILT_IN - {"threadIdx"} | {"warpSize"}
                    or token.text in SCALAR | {"min", "max", "sizeof"} or self.constant_macro(token.text)):
                return False
        return True

    def constant_macro(self, name: str) -> bool:
        """A macro of nothing but numbers, constants and the like."""
        if name not in self.macros or self.macros[name].startswith("("):
            return False
        words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\b0[xX][\da-fA-F]+|\b[\d.]\w*", "", self.macros[name]))
        return all(w in self.constant or w in ("blockDim", "gridDim", "x", "y", "z") for w in words)

    def fixed(self, name: str, first: int, last: int) -> bool:
        """Whether nothing in these tokens changes the variable."""
        return not any(self.tokens[i].text == name and (assigned(self.tokens, i) or self.handed_on(i))
                       for i in range(first, last))

    def handed_on(self, i: int) -> bool:
        """Whether the name at token i is given to a macro, an atomic or a function that takes references."""
        depth, k = 0, i - 1
        while k > self.kernel.body[0] and self.tokens[k].text not in (";", "{", "}"):
            depth += (self.tokens[k].text in (")", "]")) - (self.tokens[k].text in ("(", "["))
            if depth < 0 and self.tokens[k].text == "(":
                before = self.tokens[k - 1].text
                template = match_angle_backward(self.tokens, k - 1) if before == ">" else None
                name = self.tokens[(template or k) - 1].text
                if name in self.macros or name.startswith("atomic") or any(
                        f.name == name and {"&", "&&"} & {t.text for t in file.tokens[slice(*f.parameters)]}
                        for file, f in self.functions):
                    return True
                depth = 0
            k -= 1
        return False


def _template_names(file: Outline, kernel: Function) -> list[str]:
    if not kernel.template:
        return []
    return [t.text for t in file.tokens[slice(*kernel.template)] if t.kind == "name"]
