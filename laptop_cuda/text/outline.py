"""The outline of a file: in which function, namespace and `#if` a token is.

This is no parser. It tells functions, classes and namespaces from everything else: enough to find kernels,
launches and `__shared__` in a source without understanding the rest of it.

Two parsers were tried instead. tree-sitter-cuda (0.5 MB) outlines all kernels of the course in 84 ms, this in
508, but leaves error nodes in 6 of 33 kernel files and in 58 of 310 sources. libclang (24.5 MB) needs 0.5 s a
file, and headers that it does not bring."""
import re
from dataclasses import dataclass, field
from pathlib import Path

from .tokens import SPECIFIERS, Token, match_angle, match_forward, scan


@dataclass
class Function:
    """A function with a body. The numbers are indices into `Outline.tokens`."""
    name: str
    qualifiers: set[str]                # __global__, __device__, __host__
    namespace: str                      # "a::b"; "" at the top
    first: int                          # the first token of its head (template, extern "C", static, ...)
    parameters: tuple[int, int]         # its "(" and ")"
    body: tuple[int, int]               # its "{" and "}"
    template: tuple[int, int] | None    # the "<" and ">" after `template`
    bounds: tuple[int, int] | None      # the "(" and ")" of __launch_bounds__
    conditions: tuple[tuple[str, ...], ...]   # the #if chains around it, outermost first
    member: bool                        # of a class

    @property
    def on_device(self) -> bool:
        return bool(self.qualifiers & {"__global__", "__device__"})


@dataclass
class Outline:
    text: str
    tokens: list[Token]
    functions: list[Function] = field(default_factory=list)
    owner: list[Function | None] = field(default_factory=list)       # of each token
    namespace: list[str | None] = field(default_factory=list)  # of each; None inside functions and classes
    conditions: list[tuple[tuple[str, ...], ...]] = field(default_factory=list)
    path: Path | None = None             # of a file that another one includes
    defines: tuple[str, ...] = ()        # of a source, as with -D: N=64
    std: str = "c++17"
    as_read: str = ""                    # the file's text, before host code of libraries was left out
    together: list["Outline"] = field(default_factory=list)     # the source and the files that it includes

    def line(self, index: int) -> int:
        return self.text.count("\n", 0, self.tokens[index].start) + 1

    def source(self, first: int, last: int) -> str:
        """The text of tokens, `last` included, without comments and on one line."""
        return " ".join(t.text for t in self.tokens[first:last + 1])


def outline(text: str) -> Outline:
    return _Reader(text).read()


class _Reader:
    """One pass over the tokens of a file, with what brackets and `#if` leave behind."""
    def __init__(self, text: str):
        self.result = Outline(text, [])
        self.tokens = self.result.tokens
        self.everything = scan(text)
        self.global_macros = {"__global__"}
        self.conditions: list[list[str]] = []      # a chain is ["#if A", "#elif B"]
        self.saved: list[tuple] = []               # the bracket state at each #if, restored at its #else
        self.scopes: list[tuple[str, object]] = []  # ("namespace", "a"), ("class", None), ("function", f)
        self.head: list[int] = []                  # tokens since the last ; { or }
        self.parens = 0
        self.dead = 0                              # depth inside an #if 0

    def read(self) -> Outline:
        for position, token in enumerate(self.everything):
            if token.kind == "directive" and not self.directive(position, token) or (
                    token.kind != "directive" and self.dead):
                continue
            index, function = self.file_under(token)
            if token.kind == "directive":
                continue
            symbol = token.text if token.kind == "symbol" else ""
            if symbol in ("(", "["):
                self.parens += 1
            elif symbol in (")", "]"):
                self.parens = max(self.parens - 1, 0)
            if symbol == "{":
                self.open(index, function)
            elif symbol == "}":
                self.close(index)
            elif symbol == ";" and not self.parens:
                self.head = []
            elif not function:
                self.extend_head(symbol, index)
        return self.result

    def file_under(self, token: Token) -> tuple[int, Function | None]:
        """Files a token under the scopes and conditions that hold now."""
        result, index = self.result, len(self.tokens)
        function = next((value for kind, value in self.scopes if kind == "function"), None)
        self.tokens.append(token)
        result.owner.append(function)
        inside = any(kind not in ("namespace", "extern") for kind, _ in self.scopes)
        spaces = "::".join(value for kind, value in self.scopes if kind == "namespace" and value)
        result.namespace.append(None if inside else spaces)
        result.conditions.append(tuple(tuple(c) for c in self.conditions if c))
        return index, function

    def directive(self, position: int, token: Token) -> bool:
        """Follows a directive; whether its token is kept."""
        words = re.sub(r"\\\r?\n", " ", token.text)[1:].split(None, 1) or [""]
        keyword = words[0]
        rest = re.sub(r"//.*|/\*.*?\*/", "", words[1] if len(words) > 1 else "").strip()
        if keyword.startswith("if"):
            self.begin_if(position, keyword, rest)
        elif keyword in ("else", "elif") and self.conditions:
            self.begin_else(keyword, rest)
        elif keyword == "endif" and self.conditions:
            self.end_if()
        elif keyword == "define" and not self.dead:
            if re.match(r"\w+\s+.*\b__global__\b", rest, re.DOTALL):
                self.global_macros.add(re.match(r"\w+", rest).group())
        return not self.dead and keyword in ("define", "include")

    def begin_if(self, position: int, keyword: str, rest: str) -> None:
        following = self.everything[position + 1] if position + 1 < len(self.everything) else None
        guard = (keyword == "ifndef" and following is not None
                 and re.match(r"#\s*define\s+" + re.escape(rest) + r"\s*$", following.text))
        self.conditions.append([] if guard else [f"#{keyword} {rest}"])
        self.saved.append((list(self.scopes), list(self.head), self.parens))
        self.dead = self.dead + 1 if self.dead or (keyword == "if" and rest == "0") else 0

    def begin_else(self, keyword: str, rest: str) -> None:
        if self.conditions[-1]:
            self.conditions[-1].append(f"#{keyword} {rest}".strip())
        scopes, head, parens = self.saved[-1]
        if self.dead <= 1:
            self.scopes, self.head, self.parens = list(scopes), list(head), parens
        self.dead = 0 if self.dead == 1 else self.dead

    def end_if(self) -> None:
        self.conditions.pop()
        before = self.saved.pop()
        if self.dead == 1:
            self.scopes, self.head, self.parens = before
        self.dead = max(self.dead - 1, 0)

    def open(self, index: int, function: Function | None) -> None:
        if self.parens:                # a lambda or a braced value inside an argument list
            self.scopes.append(("inner", self.parens))
            self.parens = 0
        else:
            self.scopes.append(("block", None) if function else self.scope(index))
            self.head = []

    def close(self, index: int) -> None:
        if not self.scopes:
            return
        kind, value = self.scopes.pop()
        if kind == "function":
            value.body = (value.body[0], index)
        if kind == "inner":
            self.parens = value
        else:                          # "struct {...} name;" goes on
            self.head = [index] if kind == "class" else []

    def extend_head(self, symbol: str, index: int) -> None:
        access = len(self.head) == 1 and self.tokens[self.head[0]].text in ("public", "private", "protected")
        if symbol == ":" and access:
            self.head = []
        else:
            self.head.append(index)

    def scope(self, brace: int) -> tuple[str, object]:
        """What the "{" at token `brace` opens outside functions, from the tokens before it."""
        tokens, head = self.tokens, _without_macros(self.tokens, self.head)
        words = [tokens[i].text for i in head]
        if "namespace" in words[:2]:
            return ("namespace", "".join(words[words.index("namespace") + 1:]))
        if words[:1] == ["extern"] and len(words) == 2:
            return ("extern", None)
        start, template = _after_template(tokens, head)
        name, parameters, bounds = _signature(tokens, head[start] if start < len(head) else brace, brace)
        if parameters is None:
            return ("class" if {"struct", "class", "union", "enum"} & set(words) else "block", None)
        qualifiers = {w for w in words if w in ("__global__", "__device__", "__host__")}
        if self.global_macros & set(words):
            qualifiers.add("__global__")
        # the brace itself is already filed under the namespace and class around it
        result = self.result
        space = result.namespace[brace]
        made = Function(name, qualifiers, space or "", head[0], parameters, (brace, brace), template, bounds,
                        result.conditions[brace], space is None)
        result.functions.append(made)
        return ("function", made)


def _after_template(tokens: list[Token], head: list[int]) -> tuple[int, tuple[int, int] | None]:
    """How much of a head is `template <...>`, and the brackets of the last one."""
    start, template = 0, None
    while start < len(head) and tokens[head[start]].text == "template":
        close = match_angle(tokens, head[start] + 1) if start + 1 < len(head) else None
        if close is None:
            break
        template = (head[start] + 1, close)
        start = next((n for n, i in enumerate(head) if i > close), len(head))
    return start, template


def _signature(tokens: list[Token], i: int, brace: int) -> tuple:
    """(name, parameters, launch bounds) of the function whose head begins at token `i`, or Nones."""
    bounds = parameters = name = None
    while i < brace:
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text == "=" and tokens[i - 1].text != "operator":
            break                      # a braced initial value
        if text == "(":
            close = match_forward(tokens, i)
            before = tokens[i - 1].text
            if before == "__launch_bounds__":
                bounds = (i, close)
            elif before not in SPECIFIERS and parameters is None and i > 0:
                parameters, name = (i, close), before
            i = close
        i += 1
    return name, parameters, bounds


BEHIND_A_HEAD = {"const", "noexcept", "override", "final", "volatile", "__attribute__", "requires"}


def _without_macros(tokens: list[Token], head: list[int]) -> list[int]:
    """Drops `MACRO(...)` lines, which need no semicolon, from the start of a function's head."""
    while len(head) > 2 and tokens[head[0]].kind == "name" and tokens[head[0]].text not in SPECIFIERS:
        close = match_forward(tokens, head[0] + 1)
        rest = [i for i in head if i > close]
        if tokens[head[0] + 1].text != "(" or not rest or tokens[rest[0]].kind != "name":
            break
        if tokens[rest[0]].text in BEHIND_A_HEAD:
            break
        head = rest
    return head
