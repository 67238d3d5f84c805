"""A proof: the question as sizes, grid, block and arrays; the answer as lines, and a counterexample to run."""
import ast
import itertools
import math
import time
from dataclasses import dataclass, field

import numpy as np

from ..arguments import ArgumentError
from ..profile import profile
from ..sanitize import sanitize

MISSING = "a proof for every size needs two packages more: pip install z3-solver libclang"
MOST_BYTES, MOST_BLOCKS = 2**28, 2**16
TYPES = {"float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "unsigned char": "u1", "__half": "f2", "half": "f2"}


def prove(kernel, sizes: dict, grid, block, arrays: dict = {}, values: dict = {}, within: dict = {}, where=(),
          shared=0, seconds: float = 10) -> "Proof":
    """What holds of `kernel` for all sizes: {"n": (1, 2**30)}, or the set of values that one takes.

    grid, block, how many elements an array has, arguments (by default those called like a size) and conditions
    (`where`) are numbers or texts in the sizes: "(n + 255) // 256", "m * k < 2**31". `within` says between which
    numbers those of an array are: {"positions": (0, "n - 1")}. `kernel` may be (text, name). Taken for granted:
    different arrays do not overlap, loops end, local arrays hold anything."""
    try:
        import clang.cindex  # noqa: F401
        import z3  # noqa: F401
    except ImportError:
        raise ArgumentError(MISSING) from None
    asked = dict(sizes=sizes, grid=three(grid), block=three(block), arrays=arrays, values=values,
                 within=within, where=[where] if isinstance(where, str) else list(where), shared=shared)
    listed = [name for name, given in sizes.items() if isinstance(given, (set, frozenset))]
    began, findings, refused = time.process_time(), None, {}
    for chosen in itertools.product(*(sorted(sizes[name]) for name in listed)):
        fixed = dict(zip(listed, chosen))
        ranges = {name: (value, value) for name, value in fixed.items()}
        found, no_launch = attempt(kernel, asked | {"sizes": sizes | ranges}, seconds)
        refused = refused or no_launch
        for finding in found:
            finding.sizes |= fixed if finding.sizes else {}
        findings = found if findings is None else [worse(a, b) for a, b in zip(findings, found)]
    return Proof(kernel, asked, findings, time.process_time() - began, refused)


def text_of(kernel) -> tuple:
    """What `parse.kernel` takes: the source, the name, and where its includes are."""
    if isinstance(kernel, tuple):
        return kernel if len(kernel) > 2 else (*kernel, None)
    module = kernel.module
    return module.source, kernel.__name__, module._folder, module._include, module._define, module._std


def worse(a, b):
    order = "fails", "not decided", "not proved", "proved"
    return b if order.index(b.verdict) < order.index(a.verdict) else a


def three(given) -> tuple:
    return (*(given if isinstance(given, (tuple, list)) else (given,)), 1, 1)[:3]


def read(text, sizes: dict):
    """A number, or what a text makes of the sizes: of unknown sizes, whose truth Python cannot ask for."""
    asks = (ast.BoolOp, ast.IfExp, ast.Not, ast.In, ast.NotIn)
    for part in ast.walk(ast.parse(text)) if isinstance(text, str) else ():
        if isinstance(part, asks) or isinstance(part, ast.Compare) and len(part.ops) > 1:
            raise ArgumentError(f"{text}: one comparison in each text, without `and`, `or`, `not`, `if`")
    return eval(text, {"__builtins__": {}}, sizes) if isinstance(text, str) else text


def attempt(kernel, asked: dict, seconds: float) -> tuple[list, dict]:
    """The findings, and the smallest sizes that a launch refuses."""
    import z3

    from .claims import CLAIMS, Claims, Finding
    from .lift import LIMIT, Lift, launch_of
    from .parse import NotLifted, kernel as parsed
    from .solve import Solver, Undecided
    from .terms import SIZE, Poly, World

    world, sizes, bounds = World(), {}, []
    for name, (low, high) in asked["sizes"].items():
        sizes[name] = Poly(low) if low == high else world.new(name, SIZE)
        bounds += [sizes[name] >= low, sizes[name] <= high]
    domain = bounds + [c if isinstance(c, z3.BoolRef) else z3.BoolVal(bool(c)) for c in (read(w, sizes) for w in asked["where"])]
    grid, block = ([Poly.of(read(part, sizes)) for part in asked[name]] for name in ("grid", "block"))
    limits = [c for axis, size in zip("xyz", grid) for c in (size >= 1, size <= LIMIT[axis])]
    limits += [size >= 1 for size in block] + [block[2] <= 64, block[0] * block[1] * block[2] <= 1024]
    launch = launch_of(world, grid, block, read(asked["shared"], sizes))
    free = {name: size for name, size in sizes.items() if size.constant is None}
    solver = Solver(world, domain + limits, free, seconds)
    try:
        beyond = Solver(world, domain, free, seconds).example([z3.Not(z3.And(limits))])
        if solver.example([z3.BoolVal(True)]) is None:
            raise ArgumentError("no sizes: nothing satisfies these bounds and conditions, and the limits of a launch")
    except Undecided:
        return [Finding(claim, "not decided", "whether there are such sizes") for claim in CLAIMS], {}
    refused = {name: beyond[0].get(name, low) for name, (low, _) in asked["sizes"].items()} if beyond else {}
    arguments = sizes | {name: read(given, sizes) for name, given in (asked["values"] | asked["arrays"]).items()}
    within = {name: tuple(Poly.of(read(end, sizes)) for end in ends) for name, ends in asked["within"].items()}
    try:
        cursor = parsed(*text_of(kernel))
        lifted = Lift(cursor, world, launch, arguments, within, solver.certain)
        return Claims(lifted, solver, launch).all(), refused
    except NotLifted as reason:
        return [Finding(claim, "not proved", str(reason)) for claim in CLAIMS], refused


@dataclass
class Proof:
    kernel: object
    asked: dict
    findings: list
    seconds: float = field(repr=False, default=0.0)
    refused: dict = field(default_factory=dict)    # sizes at which a launch of this grid and block fails

    @property
    def proved(self) -> bool:
        """All but bank conflicts, with which a kernel is slower, not wrong."""
        return not self.refused and all(f.verdict == "proved" for f in self.findings if f.claim != "banks")

    @property
    def conflict_free(self) -> bool:
        """Proved, of a kernel that uses shared memory."""
        return not self.refused and any((f.claim, f.verdict) == ("banks", "proved") for f in self.findings)

    @property
    def failure(self) -> str:
        """The first claim that fails and is of a right kernel, in words; empty if none does."""
        from .claims import CLAIMS

        return next((f"{CLAIMS[f.claim]} {f.said()}" for f in self.findings
                     if f.verdict == "fails" and f.claim != "banks"), "")

    @property
    def counterexample(self) -> dict[str, int]:
        """The sizes of the first claim that fails; empty if none does."""
        return next((f.sizes for f in self.findings if f.verdict == "fails"), {})

    def run(self) -> str:
        """Launches the kernel at these sizes, on numbers from 0 to 1, under the sanitizer: a bug is a KernelError.
        Where nothing but bank conflicts fails, it is counted: which lanes met, and what ends it."""
        if not (sizes := self.counterexample):
            return "nothing fails"
        counts = {name: read(given, sizes) for name, given in self.asked["arrays"].items()}
        values = sizes | {name: read(given, sizes) for name, given in self.asked["values"].items()}
        grid, block = ([read(part, sizes) for part in self.asked[name]] for name in ("grid", "block"))
        if 8 * sum(counts.values()) > MOST_BYTES or math.prod(grid) > MOST_BLOCKS:
            return "too large to run here"
        (text,), numbers = self.kernel._texts(), np.random.default_rng(0)
        given = [numbers.random(counts[name]).astype(TYPES[type.replace("const ", "").partition("*")[0].strip()])
                 if "*" in type else values.get(name, 1) for name, type in zip(text.parameters, text.types)]
        def launch():
            self.kernel[tuple(grid), tuple(block), read(self.asked["shared"], sizes)](*given)
        if not self.failure:
            with profile() as report:
                launch()
            return str(report.launches[-1].conflicts())
        with sanitize():
            launch()
        return f"the sanitizer finds nothing at {sizes}: threads may have stored equal values"

    def __str__(self):
        from .claims import CLAIMS

        sizes = [domain(*item) for item in self.asked["sizes"].items()] + self.asked["where"]
        lines = [text_of(self.kernel)[1] + ", for every " * bool(sizes) + ", ".join(sizes)]
        if self.refused:
            lines.append("  nothing is said of sizes that no launch takes, as " + ", ".join(
                f"{name} = {size:,}" for name, size in self.refused.items()))
        lines += [f"  {CLAIMS[f.claim]:<46}{f.said()}" for f in self.findings]
        return "\n".join(lines)

    __repr__ = __str__


def domain(name, given) -> str:
    if isinstance(given, (set, frozenset)):
        return f"{name} of {', '.join(map(str, sorted(given)))}"
    return f"{name} from {given[0]:,} to {given[1]:,}"
