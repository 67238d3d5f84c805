"""Code that CUDA does not have: a static_assert in its place says so."""
import re

from ..text.outline import Function, Outline
from ..text.tokens import match_angle, match_forward, split_commas
from .passes import STATEMENT_END, Edits, Part, reject

TYPES = {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "size_t"}
HOST_CLASSES = {"cout", "cerr", "vector", "string", "map"}
# words that are not for kernels, each with the start of the next token
HOST_WORDS = {r"(calloc|realloc) \(": "it is a function of the host; use malloc",
              r"(throw|try) ": "a kernel has no exceptions; use assert, or write an error code to an array",
              r"(fprintf|puts|putchar|fputs) \(": "it is a function of the host; use printf",
              r"(terminate|raise|_exit|_Exit|quick_exit) \(": "it is a function of the host; use assert"}
ALL_HOST_WORDS = re.findall(r"\w+", " ".join(re.match(r"\((.*?)\)", pattern)[1] for pattern in HOST_WORDS))


def head_words(file: Outline, function: Function) -> list[str]:
    """The words before a function's name, template parameters aside: its qualifiers and its return type."""
    first = function.template[1] + 1 if function.template else function.first
    return [t.text for t in file.tokens[first:function.parameters[0] - 1] if t.kind == "name"]


def kernels_that_return(part: Part, edits: Edits):
    for function in part.file.functions if part.file else ():
        words = set(head_words(part.file, function))
        if "__global__" in words and words & TYPES and "void" not in words:
            reject(part, edits, function.parameters[0] - 1,
                   "a kernel returns void; write its result through a pointer")


def kernels_called_as_functions(part: Part, edits: Edits):
    for i in part.all(*part.kernels):
        owner = part.file.owner[i] if part.file else None
        if not owner or not owner.body[0] < i < owner.body[1]:
            continue
        after = i + 1
        if part.tokens[after].text == "<":
            close = match_angle(part.tokens, after)
            after = close + 1 if close else after
        if part.tokens[i - 1].text in STATEMENT_END | {")", "else"} and part.tokens[after].text == "(":
            reject(part, edits, i, f"kernel {part.tokens[i].text} is called without <<<grid, block>>>")


def host_functions_in_kernels(part: Part, edits: Edits):
    """Calls of a host function; a variable of the same name, a lambda say, is none."""
    for i in part.all(*part.host_only - part.kernels):
        owner, name = part.device_function(i), part.tokens[i].text
        own = [n for n in part.places[name] if owner.parameters[0] <= n < owner.body[1]] if owner else []
        if owner and all(_called(part, n) for n in own) and _may_be_meant(part, i):
            reject(part, edits, i,
                   f"{name} is a function of the host; with __device__ before it, a kernel may call it")


def _may_be_meant(part: Part, call: int) -> bool:
    """Whether a function of the file takes so many arguments; else it is a header's of the same name."""
    after = call + 1
    if part.tokens[after].text == "<":
        after = (match_angle(part.tokens, after) or after) + 1
    given = len(split_commas(part.tokens, after + 1, match_forward(part.tokens, after)))
    takes = [split_commas(part.tokens, f.parameters[0] + 1, f.parameters[1])
             for f in part.file.functions if f.name == part.tokens[call].text]
    return any(sum("=" not in part.words(*one) for one in p) <= given <= len(p)
               or any("..." in part.words(*one) for one in p) for p in takes)


def _called(part: Part, index: int) -> bool:
    before = part.tokens[index - 1]
    return (part.tokens[index + 1].text in ("(", "<") and before.text not in (".", "->", "::")
            and (before.kind != "name" or before.text in ("return", "else")))


def host_words_in_kernels(part: Part, edits: Edits):
    for i in part.all("std"):
        words = part.words(i, i + 3)
        if words[1:2] == ["::"] and words[2] in HOST_CLASSES and part.device_function(i):
            instead = "use printf" if words[2] in ("cout", "cerr") else "use an array"
            name = f"std::{words[2]}"
            reject(part, edits, i, f"{name} is of the host, and not to be had in a kernel; {instead}")
    for i in part.all(*ALL_HOST_WORDS):
        word = part.tokens[i].text
        if part.in_device_body(i) and part.tokens[i - 1].text not in (".", "->") and not part.own(word):
            after = f"{word} {part.tokens[i + 1].text}"
            for pattern, sentence in HOST_WORDS.items():
                if re.match(pattern, after):
                    reject(part, edits, i, f"{word}: {sentence}")
