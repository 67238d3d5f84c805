"""Sources without the host code of cuBLAS, torch and their like, which could not be called here anyway.

Left out are the functions that use such a library and those that call these, in whichever file they are;
declarations that name one; instances of templates that are gone; macros whose text does, and their uses
outside functions. Of a class's host functions only the body goes. Every line keeps its number. Where such a
library was included, the types that kernels take from it are: 16-bit numbers, tensor accessors, handles."""
import re

from ..text.outline import Function, Outline, outline
from ..text.tokens import Token, match_forward, scan

# libraries of the GPU's host side and torch's own: kernels call nothing of them
LIBRARY_HEADER = re.compile(r"#\s*include\s*[<\"](cublas|cudnn|cusolver|cusparse|cufft|nccl"
                            r"|torch/|ATen/|c10/|pybind11/|THC)[^>\"\n]*[>\"]")
LIBRARY_WORD = re.compile(r"(cublas|CUBLAS|cudnn|CUDNN|cusolver|cusparse|cufft|nccl|TORCH_|AT_|C10_)\w*"
                          r"|torch|at|c10|py|pybind11|PYBIND11_MODULE")
TITLES = {"cublas": "cuBLAS", "cudnn": "cuDNN", "cusolver": "cuSOLVER", "cusparse": "cuSPARSE",
          "cufft": "cuFFT", "nccl": "NCCL", "pybind11/": "pybind11"}             # the others are torch's
NAMESPACES = ("torch", "at", "c10", "py", "pybind11")        # words that a kernel may use for its own
STATEMENT_END = {";", "{", "}"}
# of these libraries' names, those that `laptop_torch.h` has for kernels; and for members of host classes
OFFERED = re.compile(r"C10_(HOST_DEVICE|DEVICE|HOST|LAUNCH_BOUNDS_\d|RESTRICT|WARP_SIZE)|BFloat16|Half|"
                     r"complex|acc_type|opmath_type|numeric_limits|scalar_value_type|PhiloxCudaState|"
                     r"(Generic)?(Packed)?TensorAccessor(32|64)?|"
                     r"(Default|Restrict)PtrTraits|cufft(Double)?(Complex|Real)")
DETAILS = ("TensorInfo", "IndexToOffset", "unpack")          # of at::cuda::detail and at::cuda::philox
GLOBAL = re.compile(r"WARP_\w+|THCCeilDiv")          # of laptop_torch_warps.h
NO_RETURN = "for(;;);"
OPAQUE = re.compile(r"Tensor|(cublas|cublasLt|cudnn|cusparse|cusolverDn)Handle_t|ncclComm_t")


def without_libraries(texts: list[str], missing: set[str] = frozenset(),
                      blamed: list[bool] = ()) -> list[str]:
    """The texts of a source and of its includes; host code of libraries is left out, and of `missing`
    functions in the files that are `blamed`. Of names such as `cub::BlockHistogram` in `missing`, device
    functions become traps."""
    unknown = {name for name in missing if "::" in name}
    missing = missing - unknown
    if unknown:
        texts = [_trapped(text, unknown) for text in texts]
    if not missing and not any(LIBRARY_HEADER.search(text) or "torch::Tensor" in text for text in texts):
        return texts
    texts = [LIBRARY_HEADER.sub(_types, text) for text in texts]
    files = [outline(text) for text in texts]
    if any(GLOBAL.fullmatch(f.name) for file in files for f in file.functions):      # the source's own
        files = [outline(text.replace("laptop_torch_warps.h", "laptop_torch.h")) for text in texts]
    macros = {where: _library_macros(files, missing if where else set()) for where in (False, True)}
    taken = {name for file in files for name in _taken(file.tokens)}
    names = {where: macros[where] | taken | (missing if where else set()) for where in (False, True)}
    blamed = blamed or [True] * len(files)
    gone = _library_functions([(file, names[where]) for file, where in zip(files, blamed)])
    return [_without(file, gone, names[where], macros[where], taken, missing if where else set())
            for file, where in zip(files, blamed)]


def first_library(text: str) -> tuple[str, int] | None:
    """The first of these libraries that a text includes, by its name, and the line."""
    found = LIBRARY_HEADER.search(text)
    return found and (TITLES.get(found.group(1), "torch"), text.count("\n", 0, found.start()) + 1)


def _trapped(text: str, unknown: set[str]) -> str:
    """Each device function that uses an unknown name of a library ends a launch there, with that name."""
    file = outline(text)
    for f in sorted(file.functions, key=lambda f: f.first, reverse=True):
        first, last = file.tokens[f.body[0]].end, file.tokens[f.body[1]].start
        uses = ((i, name) for i in range(f.body[0], f.body[1]) for name in unknown
                if "".join(t.text for t in file.tokens[i:i + 2 * name.count("::") + 1]) == name)
        at, name = next(uses, (None, "")) if f.on_device else (None, "")
        if at is not None:
            start = file.tokens[at].start
            trap = f'laptop::unknown("{name}");'
            text = (text[:first] + re.sub(r"[^\n]", " ", text[first:start]) + trap
                    + re.sub(r"[^\n]", "", text[start:last]) + text[last:])
    return text


def _types(include: re.Match) -> str:
    """An include of the engine's own header with the names that kernels take from a library."""
    torch = include.group(1).startswith(("torch", "ATen", "c10", "pybind11", "THC"))
    warps = re.search(r"THC/|DeviceUtils|native/cuda", include.group())
    return f"#include <laptop_{('torch_warps' if warps else 'torch') if torch else 'library_types'}.h>"


def _taken(tokens: list[Token]) -> set[str]:
    """Names that `using` takes out of a library: those of torch's tensors, or another's."""
    found = set()
    for i, token in enumerate(tokens[:-4]):
        if token.text != "using":
            continue
        last = next((n for n in range(i, len(tokens)) if tokens[n].text == ";"), i)
        if tokens[i + 1].text == "namespace" and tokens[i + 2].text in NAMESPACES:
            found.add("Tensor")
        elif any(_of_library(tokens, n) for n in range(i, last)):
            found.add(tokens[i + 1 if tokens[i + 2].text == "=" else last - 1].text)
    return found


def _library_macros(files: list[Outline], missing: set[str]) -> set[str]:
    """Names of the macros whose text uses a library or what is missing, directly or by another."""
    texts = {}
    for file in files:
        for token in file.tokens:
            define = (re.match(r"#\s*define\s+(\w+)(?:\([^)]*\))?", token.text) if token.kind == "directive"
                      else None)
            if define:
                texts[define.group(1)] = scan(token.text, define.end())
    found = set(missing)
    while True:
        more = {name for name, tokens in texts.items() if name not in found and any(
            t.text in found or _of_library(tokens, i) for i, t in enumerate(tokens))}
        if not more:
            return found - missing
        found |= more


def _library_functions(files: list[tuple[Outline, set[str]]]) -> list[Function]:
    """Host functions that use a library or one of the names beside their file, and those that call them."""
    hosts = [(file, names, f) for file, names in files for f in file.functions
             if not f.on_device and not f.member]
    kept = {f.name for file, _ in files for f in file.functions if f.on_device or f.member}
    gone: list[Function] = []
    lost: set[str] = set()
    while True:
        more = [f for file, names, f in hosts if not any(f is g for g in gone) and any(
            _of_library(file.tokens, i) or file.tokens[i].text in names or file.tokens[i].text in lost
            for i in range(f.first, f.body[1]))]
        if not more:
            return gone
        gone += more
        left = {f.name for *_, f in hosts if not any(f is g for g in gone)}    # check(cudaError_t) of several
        lost |= {f.name for f in more} - kept - left
        lost |= _library_macros([file for file, _ in files], lost)


def _without(file: Outline, gone: list[Function], names: set[str], macros: set[str], taken: set[str],
             missing: set[str]) -> str:
    tokens = file.tokens
    here = [f for f in file.functions if any(f is g for g in gone)]
    kept = {f.name for f in file.functions} - {f.name for f in gone}
    spans = {(tokens[f.first].start, tokens[f.body[1]].end, "") for f in here}
    members = [f for f in file.functions if f.member and not f.on_device]
    lost = {f.name for f in gone} - kept
    spans |= {span for f in members for span in _inside(tokens, f, names | lost)}
    for i, token in enumerate(tokens):
        if file.namespace[i] is None:
            continue
        last = match_forward(tokens, i + 1) if [t.text for t in tokens[i + 1:i + 2]] == ["("] else i
        given = {t.text for t in tokens[i:last]}
        if given and (token.text in macros or token.text.isupper() and given & (missing | lost)):
            last += last + 1 < len(tokens) and tokens[last + 1].text == ";"
            spans.add((token.start, tokens[last].end, ""))
        elif (_of_library(tokens, i) or token.text in taken or token.text in lost and _instance(tokens, i)
              or token.text in missing and _object(tokens, i)):
            spans |= _declaration(tokens, i)
    text = file.text
    for start, end, instead in sorted(spans, key=lambda span: not span[2]):      # what is gone comes last
        blank = re.sub(r"[^\n]", " ", text[start:end])
        text = text[:start] + blank.replace(" " * len(instead), instead, 1) + text[end:]
    return text


def _inside(tokens: list[Token], function: Function, names: set[str]) -> set[tuple[int, int, str]]:
    """What a class's host function has of a library: the inside of its body, or all, and the replacement."""
    uses = [i for i in range(function.first, function.body[1])
            if _of_library(tokens, i) or tokens[i].text in names]
    if not uses:
        return set()
    if any(i < function.body[0] and not _opaque(tokens, i) for i in uses):
        return {(tokens[function.first].start, tokens[function.body[1]].end, "")}
    return {(tokens[function.body[0]].end, tokens[function.body[1]].start, NO_RETURN)}


def _opaque(tokens: list[Token], i: int) -> bool:
    """Whether a library's name at token `i` is a type that the engine declares, without its members."""
    return bool(OPAQUE.fullmatch(tokens[i + 2 if tokens[i].text in NAMESPACES else i].text))


def _instance(tokens: list[Token], i: int) -> bool:
    """Whether token `i` is what `template void f<float>(...);` makes an instance of."""
    while i and not (tokens[i - 1].text in STATEMENT_END or tokens[i - 1].kind == "directive"):
        i -= 1
    return tokens[i].text == "template" and tokens[i + 1].text != "<"


def _object(tokens: list[Token], i: int) -> bool:
    """Whether token `i` is the type of a variable, whose constructor is missing."""
    after = [t.text for t in tokens[i + 1:i + 3]] + ["", ""]
    return after[0].isidentifier() and after[1] in (";", "(", "=")


def _declaration(tokens: list[Token], i: int) -> set[tuple[int, int, str]]:
    """The statement around token `i`, to its ";"; nothing with a body or of a type of the engine's."""
    first, last = i, i
    while first and not (tokens[first - 1].text in STATEMENT_END or tokens[first - 1].kind == "directive"):
        first -= 1
    while last < len(tokens) - 1 and tokens[last].text not in (";", "{"):
        last += 1
    known = tokens[first].text == "using" and _opaque(tokens, i)
    return {(tokens[first].start, tokens[last].end, "")} if tokens[last].text == ";" and not known else set()


def _of_library(tokens: list[Token], i: int) -> bool:
    word = tokens[i].text
    if tokens[i].kind != "name" or not LIBRARY_WORD.fullmatch(word):
        return False
    if word in NAMESPACES:
        words = [t.text for t in tokens[i + 1:i + 7]] + [""] * 6
        inner = words[3] == "cuda_utils" or words[1] == "cuda" and words[5] in DETAILS
        return words[0] == "::" and not inner and not OFFERED.fullmatch(words[1])
    return not OFFERED.fullmatch(word)
