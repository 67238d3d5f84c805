"""`__shared__` declarations become references into the memory of the block."""
import re

from ..text.outline import Function
from ..text.tokens import Token, match_angle, match_forward, split_commas
from .passes import ALIGNMENT, Edits, Part, reject

DROPPED = {"__shared__", "static", "extern", "inline"}


def shared_arrays(part: Part, edits: Edits):
    for i in part.all("__shared__"):
        declared_as_references(part, edits, i)


def declared_as_references(part: Part, edits: Edits, index: int):
    tokens, (first, last) = part.tokens, part.statement(index)
    words = set(part.words(first, last))
    external, at_top = "extern" in words, part.file is not None and part.file.namespace[index] is not None
    drop, alignments = dropped(part, first, last)
    names, fault = declared_names(tokens, [i for i in range(first, last) if i not in drop])
    if fault:
        reject(part, edits, index, fault)
        return
    for i in drop:
        edits.replace(tokens[i], tokens[i], "\n" * tokens[i].text.count("\n"))
    edits.insert(tokens[first].start, "typedef ", 1)     # behind what a declaration before it has added
    local = ""
    for i in names:
        name, array = tokens[i].text, tokens[min(i + 1, len(tokens) - 1)].text == "["
        edits.replace(tokens[i], tokens[i], f"laptop_type_{name}")
        local += reference(name, alignments, external, at_top, array)
        for other in extern_before(part, first) if external else ():
            local += f' laptop::one_memory("{other} and {name}");'
    if at_top:
        inject(part, edits, [tokens[i].text for i in names], local, index)
    elif last < len(tokens):
        edits.insert(tokens[last].end, local)
    else:
        edits.insert(tokens[last - 1].end, ";" + local)


def extern_before(part: Part, index: int) -> list[str]:
    """The `extern __shared__` array that the same function has declared before, if any."""
    owner = part.file and part.file.owner[index]
    before = part.piece(owner.body[0], index - 1) if owner else ""
    return re.findall(r"\bextern\b[^;]*\b__shared__\b[^;]*?(\w+)\s*\[", before)[:1]


def dropped(part: Part, first: int, last: int) -> tuple[set[int], list[str]]:
    """The tokens of a declaration that a typedef must not have, and the alignments that they ask for."""
    alignments, drop, i = [], set(), first
    while i < last:
        token = part.tokens[i]
        if token.kind == "name" and token.text in DROPPED:
            drop.add(i)
        elif token.kind == "name" and token.text in ALIGNMENT:
            close = match_forward(part.tokens, i + 1)
            alignment = re.search(r"aligned\s*\((.*)\)\s*\)\s*\)", part.piece(i, close), re.DOTALL)
            alignments.append(alignment.group(1) if alignment else part.piece(i + 2, close - 1))
            drop.update(range(i, close + 1))
            i = close
        elif token.text in ("(", "[", "{"):
            close = match_forward(part.tokens, i)
            drop.update(range(i, close + 1) if part.tokens[i + 1].text == "[" else ())      # [[maybe_unused]]
            i = close
        i += 1
    return drop, alignments


def reference(name: str, alignments: list[str], external: bool, at_top: bool, array: bool) -> str:
    kind = f"laptop_type_{name}"
    if external:
        element = f"sizeof((*({kind}*)0)[0])" if array else f"sizeof({kind})"
    align, helpers = "(size_t)16" if external else f"alignof({kind})", ""
    for n, alignment in enumerate(alignments):
        asked = f"laptop_align_{name}_{n}"
        helpers += f" struct alignas({alignment}) {asked} {{}};"
        align = f"({align} > alignof({asked}) ? {align} : alignof({asked}))"
    if external:
        asked = f", {align}" * bool(alignments)
        return f'{helpers} auto& {name} = *({kind}*)laptop::dynamic_shared("{name}", {element}{asked});'
    line, function = ("0", '""') if at_top else ("__LINE__", "__PRETTY_FUNCTION__")
    return (f'{helpers} auto& {name} = *({kind}*)laptop::shared("{name}", {line}, sizeof({kind}), '
            f"{align}, {function});")


def inject(part: Part, edits: Edits, names: list[str], local: str, index: int):
    """A shared array declared outside all functions is declared again in each function that uses it."""
    for function in part.file.functions:
        if function.body[0] < index:
            continue
        begin, end = function.parameters[0], function.body[1]
        used = {t.text for t in part.tokens[begin:end] if t.kind == "name"}
        again = any(names[0] in part.piece(i, part.statement(i)[1])
                    for i in part.all("__shared__") if function.body[0] <= i < end)
        if used & set(names) - parameters(part, function) and not again:
            edits.insert(part.tokens[function.body[0]].end, local)


def parameters(part: Part, function: Function) -> set[str]:
    """The names of a function's parameters, which hide those outside."""
    begin, end = function.parameters
    return {part.tokens[i].text for i in range(begin + 1, end)
            if part.tokens[i].kind == "name" and part.tokens[i + 1].text in ("=", "[", ",", ")")}


def declared_names(all_tokens: list[Token], rest: list[int]) -> tuple[list[int], str | None]:
    """The tokens that name the variables of a declaration, from the tokens of the declaration."""
    tokens = [all_tokens[i] for i in rest]
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
