"""CUDA C++ text as tokens, and the outline of a file: which function, namespace and `#if` a token stands in.

This is no parser. It knows comments, strings, raw strings and preprocessor lines, matches brackets, and
tells functions from everything else: enough to find kernels, launches and `__shared__` in a source
without understanding the rest of it.
"""
import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""(?P<space>(?:\s|\\\r?\n)+)
      | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
      | (?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
                  |(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"
                  |(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<symbol><<<|<<|->|::|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"#(?:\\\r?\n|/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|[^\n])*", re.DOTALL)
CLOSING = {")": "(", "]": "[", "}": "{"}
# a name before "(" that is not the name of a function
SPECIFIERS = {"__launch_bounds__", "__align__", "alignas", "__attribute__", "decltype", "noexcept", "__cluster_dims__",
              "__declspec", "throw", "requires", "__maxnreg__", "__block_size__"}


@dataclass
class Token:
    kind: str       # name, number, string, symbol, or directive (a whole preprocessor line)
    text: str
    start: int
    end: int


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


@dataclass
class Outline:
    text: str
    tokens: list[Token]
    functions: list[Function] = field(default_factory=list)
    owner: list[Function | None] = field(default_factory=list)       # of each token
    namespace: list[str | None] = field(default_factory=list)        # of each token; None inside functions and classes
    conditions: list[tuple[tuple[str, ...], ...]] = field(default_factory=list)
    path: Path | None = None             # of a file that another one includes
    as_read: str = ""                    # the file's text, before host code of libraries was left out

    def line(self, index: int) -> int:
        return self.text.count("\n", 0, self.tokens[index].start) + 1

    def source(self, first: int, last: int) -> str:
        """The text from token `first` to token `last`, without comments and on one line."""
        return " ".join(t.text for t in self.tokens[first:last + 1])


def scan(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Tokens without spaces and comments; a preprocessor line, continued or not, is one token."""
    tokens, position, end = [], start, len(text) if end is None else end
    line_start = True
    while position < end:
        if text[position] == "#" and line_start:
            match = DIRECTIVE.match(text, position, end)
            tokens.append(Token("directive", match.group(), position, match.end()))
        else:
            match = TOKEN.match(text, position, end)
            if match.lastgroup in ("space", "comment"):
                line_start = line_start or "\n" in match.group()
            else:
                tokens.append(Token(match.lastgroup, match.group(), position, match.end()))
                line_start = False
        position = match.end()
    return tokens


def match_forward(tokens: list[Token], index: int) -> int:
    """The bracket that closes the one at `index`; the last token if none does."""
    depth = 0
    for i in range(index, len(tokens)):
        if tokens[i].kind == "symbol":
            depth += tokens[i].text in ("(", "[", "{")
            depth -= tokens[i].text in CLOSING
            if depth == 0:
                return i
    return len(tokens) - 1


def match_backward(tokens: list[Token], index: int) -> int:
    depth = 0
    for i in range(index, -1, -1):
        if tokens[i].kind == "symbol":
            depth += tokens[i].text in CLOSING
            depth -= tokens[i].text in ("(", "[", "{")
            if depth == 0:
                return i
    return 0


def match_angle(tokens: list[Token], index: int) -> int | None:
    """The ">" of the template argument list that opens at `index`; None if this "<" means less."""
    depth, i = 0, index
    while i < len(tokens):
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text in ("(", "[", "{"):
            i = match_forward(tokens, i)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return i
        elif text in (";", ")", "]", "}"):
            return None
        i += 1
    return None


def match_angle_backward(tokens: list[Token], index: int) -> int | None:
    depth, i = 0, index
    while i >= 0:
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text in CLOSING:
            i = match_backward(tokens, i)
        elif text == ">":
            depth += 1
        elif text == "<":
            depth -= 1
            if depth == 0:
                return i
        elif text in (";", "(", "[", "{"):
            return None
        i -= 1
    return None


def split_commas(tokens: list[Token], first: int, last: int) -> list[tuple[int, int]]:
    """The comma-separated pieces of tokens[first:last], as (first, last) with last excluded."""
    pieces, begin, i = [], first, first
    while i < last:
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text in ("(", "[", "{"):
            i = match_forward(tokens, i)
        elif text == "<" and i > first and tokens[i - 1].kind == "name":
            close = match_angle(tokens, i)
            i = close if close is not None and close < last else i
        elif text == ",":
            pieces.append((begin, i))
            begin = i + 1
        i += 1
    if begin < last:
        pieces.append((begin, last))
    return pieces


def outline(text: str) -> Outline:
    result = Outline(text, [])
    tokens = result.tokens
    global_macros = {"__global__"}
    conditions: list[list[str]] = []       # a chain is ["#if A", "#elif B"]
    saved: list[tuple] = []                # the bracket state at each #if, restored at its #else
    scopes: list[tuple[str, object]] = []  # ("namespace", "a"), ("class", None), ("function", f), ("block", None)
    head: list[int] = []                   # tokens since the last ; { or }
    parens = 0
    dead = 0                               # depth inside an #if 0
    everything = scan(text)
    guard = None
    for position, token in enumerate(everything):
        if token.kind == "directive":
            words = re.sub(r"\\\r?\n", " ", token.text)[1:].split(None, 1) or [""]
            keyword, rest = words[0], re.sub(r"//.*|/\*.*?\*/", "", words[1] if len(words) > 1 else "").strip()
            if keyword.startswith("if"):
                following = everything[position + 1] if position + 1 < len(everything) else None
                guard = (keyword == "ifndef" and following is not None
                         and re.match(r"#\s*define\s+" + re.escape(rest) + r"\s*$", following.text))
                conditions.append([] if guard else [f"#{keyword} {rest}"])
                saved.append((list(scopes), list(head), parens))
                dead = dead + 1 if dead or (keyword == "if" and rest == "0") else 0
            elif keyword in ("else", "elif") and conditions:
                if conditions[-1]:
                    conditions[-1].append(f"#{keyword} {rest}".strip())
                before = saved[-1]
                if dead <= 1:
                    scopes, head, parens = list(before[0]), list(before[1]), before[2]
                dead = 0 if dead == 1 else dead
            elif keyword == "endif" and conditions:
                conditions.pop()
                before = saved.pop()
                if dead == 1:
                    scopes, head, parens = before
                dead = max(dead - 1, 0)
            elif keyword == "define" and not dead:
                if re.match(r"\w+\s+.*\b__global__\b", rest, re.DOTALL):
                    global_macros.add(re.match(r"\w+", rest).group())
            if dead or keyword not in ("define", "include"):
                continue
        elif dead:
            continue
        index = len(tokens)
        function = next((s[1] for s in scopes if s[0] == "function"), None)
        tokens.append(token)
        result.owner.append(function)
        inside = any(kind not in ("namespace", "extern") for kind, _ in scopes)
        result.namespace.append(None if inside else "::".join(s[1] for s in scopes if s[0] == "namespace" and s[1]))
        result.conditions.append(tuple(tuple(c) for c in conditions if c))
        if token.kind == "directive":
            continue
        text_ = token.text if token.kind == "symbol" else ""
        if text_ in ("(", "["):
            parens += 1
        elif text_ in (")", "]"):
            parens = max(parens - 1, 0)
        if text_ == "{" and parens:        # a lambda or a braced value inside an argument list
            scopes.append(("inner", parens))
            parens = 0
        elif text_ == "{":
            scopes.append(_scope(result, head, index, function, global_macros))
            head = []
        elif text_ == "}":
            if scopes:
                kind, value = scopes.pop()
                if kind == "function":
                    value.body = (value.body[0], index)
                if kind == "inner":
                    parens = value
                elif kind == "class":      # "struct {...} name;" goes on
                    head = [index]
                else:
                    head = []
        elif text_ == ";" and not parens:
            head = []
        elif not function:
            if text_ == ":" and len(head) == 1 and tokens[head[0]].text in ("public", "private", "protected"):
                head = []
            else:
                head.append(index)
    return result


def _without_macros(tokens: list[Token], head: list[int]) -> list[int]:
    """Drops `MACRO(...)` lines, which need no semicolon, from the start of a function's head."""
    while len(head) > 2 and tokens[head[0]].kind == "name" and tokens[head[0]].text not in SPECIFIERS:
        close = match_forward(tokens, head[0] + 1)
        rest = [i for i in head if i > close]
        if tokens[head[0] + 1].text != "(" or not rest or tokens[rest[0]].kind != "name":
            break
        if tokens[rest[0]].text in ("const", "noexcept", "override", "final", "volatile", "__attribute__", "requires"):
            break
        head = rest
    return head


def _scope(result: Outline, head: list[int], brace: int, function: Function | None, global_macros: set[str]):
    """What the "{" at token `brace` opens, from the tokens before it."""
    if function:
        return ("block", None)
    tokens = result.tokens
    head = _without_macros(tokens, head)
    words = [tokens[i].text for i in head]
    if "namespace" in words[:2]:
        return ("namespace", "".join(words[words.index("namespace") + 1:]))
    if words[:1] == ["extern"] and len(words) == 2:
        return ("extern", None)
    start, template = 0, None
    while start < len(head) and words[start] == "template":
        close = match_angle(tokens, head[start] + 1) if start + 1 < len(head) else None
        if close is None:
            break
        template = (head[start] + 1, close)
        start = next((n for n, i in enumerate(head) if i > close), len(head))
    bounds = parameters = name = None
    i = head[start] if start < len(head) else brace
    while i < brace:
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text == "=" and tokens[i - 1].text != "operator":
            break                              # a braced initial value
        if text == "(":
            close = match_forward(tokens, i)
            before = tokens[i - 1].text
            if before == "__launch_bounds__":
                bounds = (i, close)
            elif before not in SPECIFIERS and parameters is None and i > 0:
                parameters, name = (i, close), before
            i = close
        i += 1
    if parameters is None:
        return ("class" if {"struct", "class", "union", "enum"} & set(words) else "block", None)
    qualifiers = {w for w in words if w in ("__global__", "__device__", "__host__")}
    if global_macros & set(words):
        qualifiers.add("__global__")
    # the namespace and class around: the brace itself was already filed under them
    member = result.namespace[brace] is None
    made = Function(name, qualifiers, result.namespace[brace] or "", head[0], parameters, (brace, brace), template,
                    bounds, result.conditions[brace], member)
    result.functions.append(made)
    return ("function", made)
