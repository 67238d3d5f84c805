"""A kernel's syntax tree, by libclang: the source as it is, before stub.h, with templates instantiated."""
import ctypes
import functools
import re
import tempfile
from pathlib import Path

BINARY = ("", "", "", "*", "/", "%", "+", "-", "<<", ">>", "<=>", "<", ">", "<=", ">=", "==", "!=", "&", "^", "|", "&&",
          "||", "=", "*=", "/=", "%=", "+=", "-=", "<<=", ">>=", "&=", "^=", "|=", ",")
UNARY = ("", "x++", "x--", "++", "--", "&", "*", "+", "-", "~", "!", "", "", "", "")
SAME = "defined true false __CUDA_ARCH__ __CUDACC__ __cplusplus __LINE__ __FILE__ __FUNCTION__ __VA_ARGS__ __VA_OPT__".split()
ASKED = r"^\s*(?:#|%:)\s*(?:el)?if(?:n?def)?\b(.*)|\b(__[A-Z0-9_]+__|__clang\w*)"    # a condition, or a compiler's macro
STUB = str(Path(__file__).parent / "stub.h")
WIDTHS = {"SCHAR": 8, "CHAR_S": 8, "UCHAR": -8, "SHORT": 16, "USHORT": -16, "INT": 32, "UINT": -32, "LONG": 64, "ULONG": -64,
          "LONGLONG": 64, "ULONGLONG": -64, "WCHAR": 32, "CHAR16": -16, "CHAR32": -32}    # bits, negative where there is no sign
HEADERS = """cuda_runtime.h cuda.h cuda_fp16.h cuda_bf16.h device_launch_parameters.h math.h cmath stdint.h cstdint stddef.h
cstddef float.h cfloat limits.h climits stdio.h cstdio stdlib.h cstdlib assert.h cassert type_traits math_constants.h
algorithm"""
FLAGS = ("-x", "c++", "-nostdinc", "-target", "nvptx64-nvidia-cuda", "-w", "-ferror-limit=1")


class NotLifted(Exception):
    """What the proof cannot follow, and where."""

    def __init__(self, reason: str, line: int | None = None):
        super().__init__(f"{reason}, line {line}" if line else reason)


@functools.cache
def library():
    from clang import cindex

    lib = cindex.conf.lib
    for name, given, result in (("clang_EvalResult_getAsLongLong", ctypes.c_void_p, ctypes.c_longlong),
                                ("clang_EvalResult_dispose", ctypes.c_void_p, None),
                                ("clang_Cursor_Evaluate", cindex.Cursor, ctypes.c_void_p),
                                ("clang_Cursor_getVarDeclInitializer", cindex.Cursor, cindex.Cursor)):
        function = getattr(lib, name)
        function.argtypes, function.restype = [given], result
    return cindex, lib


def kernel(source: str, name: str, folder: Path | None, include=(), define=(), std="c++17"):
    """The cursor of a kernel or of an instance, `name` as in "tile<64, 32>"."""
    cindex, _ = library()
    with tempfile.TemporaryDirectory() as empty:
        for header in HEADERS.split():
            (Path(empty) / header).touch()
        path = str(Path(folder or empty) / "kernel.cu")
        text = f"{source}\nstatic auto laptop_chosen = &{name};\n"
        flags = [*FLAGS, f"-std={std}", f"-I{empty}", *(f"-I{where}" for where in include), *(f"-D{one}" for one in define), "-include",
                 STUB]
        unit = cindex.Index.create().parse(path, flags, [(path, text)])
        own = [Path(used.include.name) for used in unit.get_includes() if used.include.name != STUB]
        asked(text, [file.read_text() for file in own if file.parent != Path(empty)], define)
    for said in unit.diagnostics:
        if said.severity >= cindex.Diagnostic.Error:
            raise NotLifted(f"the source cannot be read here: {said.spelling}", said.location.line)
    chosen = next(c for c in unit.cursor.get_children() if c.spelling == "laptop_chosen")
    found = next(c for c in chosen.walk_preorder() if c.kind.name == "DECL_REF_EXPR").referenced
    found.unit = unit
    return found


def asked(text: str, included: list[str], define) -> None:
    """A macro that decides what is compiled, and that a compiler or a header may define which is not here."""
    made = {*SAME, *(d.split("=")[0] for d in define)}
    for one in (text, *included):
        made |= set(re.findall(r"^\s*(?:#|%:)\s*(?:define|undef)\s+(\w+)", one, re.M))
    for one in (text, *included):
        one = re.sub(r"/\*.*?\*/", lambda comment: re.sub(r"[^\n]", "", comment[0]), one, flags=re.S)
        one = re.sub(r'"(\\.|[^"\\\n])*"|//.*', "", one.replace("\\\n", " "))
        for found in re.finditer(ASKED, one, re.M):
            for name in re.findall(r"\b[A-Za-z_]\w*", found[1] or found[2]):
                if name not in made:
                    raise NotLifted(f"`{name}`, which a compiler or a header may define", one.count("\n", 0, found.start()) + 1)


def of_cuda(declaration) -> bool:
    """Whether stub.h declares it."""
    file = declaration.location.file
    return bool(file) and file.name == STUB


def operator(cursor) -> str:
    _, lib = library()
    if cursor.kind.name == "UNARY_OPERATOR":
        return UNARY[lib.clang_getCursorUnaryOperatorKind(cursor)]
    return BINARY[lib.clang_getCursorBinaryOperatorKind(cursor)]


def constant(cursor) -> int | None:
    """The value of a constant expression of whole numbers."""
    _, lib = library()
    result = lib.clang_Cursor_Evaluate(cursor)
    if not result:
        return None
    try:
        if lib.clang_EvalResult_getKind(ctypes.c_void_p(result)) == 1:
            return lib.clang_EvalResult_getAsLongLong(result)
    finally:
        lib.clang_EvalResult_dispose(result)


def begins(cursor) -> bool:
    """Whether a variable is given a value where it is declared."""
    return not library()[1].clang_Cursor_getVarDeclInitializer(cursor).kind.is_invalid()


def alignment(cursor, type) -> int:
    """Of a variable: what its type asks for, or more where that is a number in the text."""
    given = [type.get_align()]
    for mark in cursor.get_children():
        if mark.kind.name == "ALIGNED_ATTR":
            unit, cindex = cursor.translation_unit, library()[0]
            ends = [cindex.SourceLocation.from_offset(unit, at.file, at.offset)   # not within a macro
                    for at in (mark.extent.start, cursor.location)]
            text = [t.spelling for t in unit.get_tokens(extent=cindex.SourceRange.from_locations(*ends))]
            given += [int(n) for word, a, n, b in zip(text, text[1:2], text[2:3], text[3:4])
                      if word in ("alignas", "__align__", "aligned") and a == "(" and b == ")" and n.isdigit()]
    return max(given)


def members(made) -> list:
    """What a class declares, of an instance also what its template does; none that the compiler writes."""
    pattern = library()[1].clang_getSpecializedCursorTemplate(made)
    return [c for of in (made, pattern) if of for c in of.get_children()]


def for_parts(cursor) -> list:
    """[first, condition, step, body] of a `for`, None where there is none: told by the semicolons between them."""
    cuts, depth = [], 0
    for token in cursor.get_tokens():
        depth += {"(": 1, ")": -1, "{": 1, "}": -1, "[": 1, "]": -1}.get(token.spelling, 0)
        if token.spelling == ";" and depth == 1 or token.spelling == ")" and depth == 0:
            cuts.append(token.extent.start.offset)
        if len(cuts) == 3:
            break
    parts = [None] * 4
    for child in cursor.get_children():
        where = sum(child.extent.start.offset > cut for cut in cuts) if len(cuts) == 3 else 0
        if parts[where] is not None:
            raise NotLifted("a loop that a macro writes", cursor.location.line)
        parts[where] = child
    if parts[3] is None:
        raise NotLifted("a loop that a macro writes", cursor.location.line)
    return parts
