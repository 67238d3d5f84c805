"""`kernel<<<grid, block>>>(x)` becomes a call, and cudaLaunchKernel learns the kernel's type."""
import re

from ..text.outline import Outline
from ..text.tokens import Token, match_angle_backward, match_backward, match_forward, split_commas
from .passes import Edits, Part

BY_FUNCTION = {"cudaLaunchKernel": "launch_kernel", "cudaLaunchCooperativeKernel": "launch_cooperative",
               "cudaLaunchKernelEx": "launch_kernel", "cudaLaunchKernelExC": "launch_kernel_c"}
MACRO = re.compile(r"#\s*define\s+(\w+)")


def launches_in_device_code(files: list[Outline]) -> bool:
    """Whether a kernel may launch another: by its own text, a device function's, or that of a macro there."""
    macros = {found[1] for file in files for t in file.tokens if t.kind == "directive" and "<<<" in t.text
              and (found := MACRO.match(t.text))}
    return any(token.text == "<<<" or token.text in macros for file in files
               for token, owner in zip(file.tokens, file.owner) if owner and owner.on_device)


def launches(part: Part, edits: Edits):
    by_reference = {f.name for f in (part.file.functions if part.file else ()) if "__global__" in f.qualifiers
                    and {"&", "&&"} & set(part.words(*f.parameters))}
    for i in part.all("<<<"):
        launch(part, edits, i, by_reference)


def launch(part: Part, edits: Edits, opening: int, by_reference: set[str]):
    tokens = part.tokens
    begin, end = callee_start(tokens, opening), configuration_end(tokens, opening)
    if begin is None or end is None:
        return
    after = end + 3                       # the "(" of the arguments
    if after >= len(tokens) or tokens[after].text != "(":
        return
    callee = re.sub(r"\s+", " ", part.piece(begin, opening - 1).replace("\\\n", " "))
    quoted = callee.replace("\\", "\\\\").replace('"', '\\"')
    base = callee.split("<")[0].split("::")[-1].strip()
    function, by = ("host_launch_by_reference", "&") if base in by_reference else ("host_launch", "")
    # what a child's callee needs is copied: its parent's thread ends before it runs
    owner = part.file.owner[opening] if part.file else None
    captured = "=" if owner and owner.on_device else "&"
    edits.insert(tokens[begin].start,
                 f'laptop::{function}("{quoted}", __LINE__, [{captured}](auto{by}... laptop_args) {{ ')
    edits.replace(tokens[opening], tokens[opening], "(laptop_args...); }, laptop::launch_config(")
    close = match_forward(tokens, after)
    edits.replace(tokens[end], tokens[end + 2], ")")
    edits.replace(tokens[after], tokens[after], "" if close == after + 1 else ", ")
    pointers = pointers_of(part, base)
    zeros = {first for n, (first, last) in enumerate(split_commas(tokens, after + 1, close))
             if n in pointers and last == first + 1 and tokens[first].text == "0"}
    for i in range(after, close):
        if tokens[i].text == "NULL" or i in zeros:       # an integer as an argument of a template
            edits.replace(tokens[i], tokens[i], "nullptr")


def pointers_of(part: Part, kernel: str) -> set[int]:
    """Which parameters of a kernel are pointers in each of its definitions."""
    found = []
    for file in (part.file.together or [part.file]) if part.file else ():
        for f in file.functions:
            if f.name == kernel and "__global__" in f.qualifiers:
                pieces = split_commas(file.tokens, f.parameters[0] + 1, f.parameters[1])
                found.append({n for n, (first, last) in enumerate(pieces)
                              if "*" in file.source(first, last - 1)})
    return set.intersection(*found) if found else set()


def callee_start(tokens: list[Token], opening: int) -> int | None:
    """The first token of the expression before `<<<`: k, ns::k<T>, object.k, table[i], (choose(n))."""
    i = opening - 1
    if i < 0:
        return None
    while True:
        text = tokens[i].text
        if text == ">":
            i = match_angle_backward(tokens, i)
            if not i:
                return None
            i -= 1
            continue
        if text in (")", "]"):
            i = match_backward(tokens, i)
            before = tokens[i - 1] if i else None
            if before and (before.kind == "name" and before.text != "return" or before.text in ("]", ")")):
                i -= 1
                continue
        elif tokens[i].kind != "name":
            return None
        if i and tokens[i - 1].text == "template":
            i -= 1
        if i > 1 and tokens[i - 1].text in (".", "->", "::"):
            if tokens[i - 2].kind == "name" or tokens[i - 2].text in (">", ")", "]"):
                i -= 2
                continue
            i -= 1
        elif i == 1 and tokens[0].text == "::":
            i = 0
        return i


def configuration_end(tokens: list[Token], opening: int) -> int | None:
    """The first of the three ">" that close a launch configuration."""
    spaced = tokens[opening].end - tokens[opening].start > 3
    i = opening + 1
    while i + 2 < len(tokens):
        text = tokens[i].text
        if text in ("(", "[", "{"):
            i = match_forward(tokens, i)
        elif text == ";":
            return None
        elif text == ">" and [t.text for t in tokens[i:i + 4]] in ([">", ">", ">"], [">", ">", ">", "("]):
            if spaced or tokens[i + 2].end - tokens[i].start == 3:
                return i
        i += 1
    return None


def launches_by_function(part: Part, edits: Edits):
    """Give cudaLaunchKernel(f, ...) the kernel's name, and its type: a cast to void* would hide it."""
    for i in part.all(*BY_FUNCTION):
        opening = i + 1
        if opening + 1 >= len(part.tokens) or part.tokens[opening].text != "(":
            continue
        word = part.tokens[i].text
        pieces = split_commas(part.tokens, opening + 1, match_forward(part.tokens, opening))
        first, last = (*pieces, (opening + 1, opening + 1))["Ex" in word]       # behind the configuration
        if part.tokens[first].text == "(":
            close = match_forward(part.tokens, first)
            if set(part.words(first + 1, close)) <= {"const", "void", "*"}:
                edits.replace(part.tokens[first], part.tokens[close], "")
                first = close + 1
        name = part.piece(first, last - 1)
        edits.replace(part.tokens[i], part.tokens[i], f"laptop::{BY_FUNCTION[word]}")
        edits.insert(part.tokens[opening].end, f'"{name.lstrip("&")}", ', -1)
