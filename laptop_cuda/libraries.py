"""Sources without the host code of cuBLAS, torch and their like, which could not be called here anyway.

Left out are the functions that use such a library and those that call these, in whichever file they are;
declarations that name one; macros whose text does, and their uses outside functions. Every line keeps its
number. The includes of such libraries bring the 16-bit types along, so they become an include of those.
"""
import re

from .outline import Function, Outline, outline
from .tokens import Token, match_forward, scan

# libraries of the GPU's host side and torch's own: kernels call nothing of them
LIBRARY_HEADER = re.compile(
    r"#\s*include\s*[<\"](cublas|cudnn|cusolver|cusparse|cufft|nccl"
    r"|torch/|ATen/|c10/|pybind11/|THC)[^>\"\n]*[>\"]"
)
LIBRARY_WORD = re.compile(r"(cublas|CUBLAS|cudnn|CUDNN|cusolver|cusparse|cufft|nccl|TORCH_|AT_|C10_)\w*"
                          r"|torch|at|c10|py|pybind11|PYBIND11_MODULE")
NAMESPACES = ("torch", "at", "c10", "py", "pybind11")        # words that a kernel may use for its own
STATEMENT_END = {";", "{", "}"}
HALVES = "#include <laptop_half_types.h>"


def without_libraries(texts: list[str]) -> list[str]:
    """The texts of a source and of its includes, host code of libraries left out."""
    if not any(LIBRARY_HEADER.search(text) for text in texts):
        return texts
    texts = [LIBRARY_HEADER.sub(HALVES, text) for text in texts]
    files = [outline(text) for text in texts]
    macros = _library_macros(files)
    gone = _library_functions(files, macros)
    return [_without(file, gone, macros) for file in files]


def _library_macros(files: list[Outline]) -> set[str]:
    """Names of the macros whose text uses a library, directly or by another macro."""
    texts = {}
    for file in files:
        for token in file.tokens:
            define = (
                re.match(r"#\s*define\s+(\w+)(?:\([^)]*\))?", token.text)
                if token.kind == "directive"
                else None
            )
            if define:
                texts[define.group(1)] = scan(token.text, define.end())
    found: set[str] = set()
    while True:
        more = {name for name, tokens in texts.items() if name not in found and any(
            t.text in found or _of_library(tokens, i) for i, t in enumerate(tokens))}
        if not more:
            return found
        found |= more


def _library_functions(files: list[Outline], macros: set[str]) -> list[Function]:
    hosts = [(file, f) for file in files for f in file.functions if not f.qualifiers and not f.member]
    kept = {f.name for file in files for f in file.functions if f.qualifiers or f.member}
    gone: list[Function] = []
    names = set(macros)
    while True:
        more = [f for file, f in hosts if not any(f is g for g in gone) and any(
            _of_library(file.tokens, i) or file.tokens[i].text in names for i in range(f.first, f.body[1]))]
        if not more:
            return gone
        gone += more
        names |= {f.name for f in more} - kept


def _without(file: Outline, gone: list[Function], macros: set[str]) -> str:
    tokens = file.tokens
    spans = [
        (tokens[f.first].start, tokens[f.body[1]].end) for f in file.functions if any(f is g for g in gone)
    ]
    for i, token in enumerate(tokens):
        if file.namespace[i] is None:
            continue
        if token.text in macros and tokens[min(i + 1, len(tokens) - 1)].text == "(":
            last = match_forward(tokens, i + 1)
            last += last + 1 < len(tokens) and tokens[last + 1].text == ";"
            spans.append((token.start, tokens[last].end))
        elif _of_library(tokens, i):
            spans.append(_declaration(tokens, i))
    text = file.text
    for start, end in spans:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


def _declaration(tokens: list[Token], i: int) -> tuple[int, int]:
    """The statement around token `i`, from its start to its ";"; nothing if a body follows."""
    first, last = i, i
    while first and not (tokens[first - 1].text in STATEMENT_END or tokens[first - 1].kind == "directive"):
        first -= 1
    while last < len(tokens) - 1 and tokens[last].text not in (";", "{"):
        last += 1
    return (tokens[first].start, tokens[last].end) if tokens[last].text == ";" else (0, 0)


def _of_library(tokens: list[Token], i: int) -> bool:
    word = tokens[i].text
    if tokens[i].kind != "name" or not LIBRARY_WORD.fullmatch(word):
        return False
    return word not in NAMESPACES or i + 1 < len(tokens) and tokens[i + 1].text == "::"
