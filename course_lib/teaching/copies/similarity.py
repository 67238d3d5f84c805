"""Code that is the same, names, comments and spacing aside; whether a text holds a solution."""
import ast
import builtins
import re
from functools import lru_cache

from course_lib.exercises.parts import Exercise
from laptop_cuda.text.plain import plain_text

LENGTH = 5
CPP_WORDS = set("""
    alignas alignof auto bool break case char class const constexpr continue default delete do double else
    enum explicit extern false float for friend goto if inline int long mutable namespace new nullptr
    operator private protected public return short signed sizeof static static_assert static_cast struct
    switch template this true typedef typename union unsigned using void volatile while int8_t int16_t
    int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t half bfloat16 float2 float4 int4 dim3
    threadIdx blockIdx blockDim gridDim warpSize x y z w
    """.split())


@lru_cache(maxsize=4096)
def skeleton(source: str, language: str = "python") -> str:
    """A text that two sources share exactly if they differ in their own names, comments and spacing."""
    return _cpp(source) if language == "cuda" else _python(source)


def pieces(source: str, language: str = "python") -> frozenset[tuple[str, ...]]:
    """The runs of LENGTH words of a skeleton: a line more or less changes a few of them."""
    words = re.findall(r"\w+|[^\s\w(),=\[\]]", skeleton(source, language))
    return frozenset(tuple(words[i:i + LENGTH]) for i in range(max(1, len(words) - LENGTH + 1)))


def likeness(one: frozenset, other: frozenset) -> float:
    """Which share of the pieces of two sources both have, 0 to 1."""
    return len(one & other) / max(1, len(one | other))


def _python(source: str) -> str:
    try:
        tree = ast.parse(source)
        return ast.dump(_Rename(tree).visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # ValueError: null bytes, endless numbers
        return "".join(source.split())


class _Rename(ast.NodeTransformer):
    """Number the names that a tree binds, in order of appearance; drop docstrings and annotations."""

    def __init__(self, tree: ast.AST):
        nodes = list(ast.walk(tree))
        self.bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        self.bound |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self.names: dict[str, str] = {}

    def renamed(self, name: str) -> str:
        own = name in self.bound and not hasattr(builtins, name)
        return self.names.setdefault(name, f"n{len(self.names)}") if own else name

    def visit_Name(self, node):
        node.id = self.renamed(node.id)
        return node

    def visit_arg(self, node):
        node.arg, node.annotation = self.renamed(node.arg), None
        return node

    def visit_keyword(self, node):
        if node.arg in self.bound:
            node.arg = self.renamed(node.arg)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node):
        self.generic_visit(node)
        return ast.Assign([node.target], node.value, lineno=node.lineno) if node.value else None

    def visit_FunctionDef(self, node):
        node.name, node.returns = self.renamed(node.name), None
        return self._block(node)

    def visit_ClassDef(self, node):
        node.name = self.renamed(node.name)
        return self._block(node)

    def _block(self, node):
        first = node.body[0]
        if (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)):
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def _cpp(source: str) -> str:
    names: dict[str, str] = {}
    out = []
    for token in re.findall(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)|[A-Za-z_]\w*|\d[\w.]*|\S', plain_text(source), flags=re.S):
        if (token[0].isalpha() or token[0] == "_") and token not in CPP_WORDS and not token.startswith("__"):
            token = names.setdefault(token, f"n{len(names)}")
        out.append(token)
    return " ".join(out)


@lru_cache(maxsize=256)
def lines_of(text: str) -> list[str]:
    """Lines of code with spacing and comments gone; empty ones left out."""
    plain = (re.sub(r"\s+", "", re.sub(r"(#|//).*$", "", line)) for line in text.splitlines())
    return [line for line in plain if line]


@lru_cache(maxsize=256)
def line_set(text: str) -> frozenset[str]:
    return frozenset(lines_of(text))


@lru_cache(maxsize=None)
def telling_lines(exercise: Exercise) -> list[str]:
    """The lines by which the solution is known: those that the stub lacks; all, where these are too few."""
    if exercise.kind in ("predict", "choose"):
        return []
    known = set(lines_of(exercise.stub)) | set(lines_of(exercise.card))
    lines = [line for line in lines_of(exercise.solution) if not line.startswith(('"""', "'''"))]
    told = [line for line in lines if line not in known and len(line) > 3]
    return told if sum(map(len, told)) >= 40 else lines


def holds(text: str, exercise: Exercise) -> bool:
    """Whether a text holds the solution: its telling lines, in order and close together."""
    wanted = telling_lines(exercise)
    if not wanted or not set(wanted) <= line_set(text):
        return False
    lines = lines_of(text)
    for start in (i for i, line in enumerate(lines) if line == wanted[0]):
        window = iter(lines[start:start + 3 * len(wanted) + 6])
        if all(line in window for line in wanted):
            return True
    return False
