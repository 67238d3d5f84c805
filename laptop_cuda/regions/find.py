"""The regions of a kernel: the statements between its barriers, and the variables that outlive them."""
from dataclasses import dataclass

from ..text.outline import Outline
from ..text.signature import KernelText
from ..text.statements import SCALAR, VECTORS, Declared, Statement, declaration, statements
from .check import Checker, Refused
from .quiet import Packs
from .warps import Exchange, Warps, holds_warp, is_warp_barrier


@dataclass
class Region:
    """Tokens first to last (excluded) that become one loop, over all threads or over the lanes of a warp."""
    first: int
    last: int
    scope: tuple[str, ...]               # the variables in scope at its end
    lanes: bool
    group: int | None                    # the loop over the warps around it, if it is not in a block inside
    gives: list[Exchange]                # that begin at its end
    uniform: frozenset[str]              # the variables that all threads have in common there


class Regions:
    """One kernel's body and the changes to it."""

    def __init__(self, files: list[Outline], file: Outline, kernel: KernelText):
        self.file, self.kernel, self.tokens = file, kernel, file.tokens
        self.check = Checker(files, file, kernel.function)
        self.edits: list[tuple[int, int, str]] = []          # start, end, what it becomes
        self.inserted: list[tuple[int, str, int]] = []       # place, text, its order among those of a place
        self.region_of: dict[int, int] = {}                  # of a token: the region that it is in
        self.regions: list[Region] = []
        self.groups: list[tuple[int, int]] = []              # tokens that become a loop over the warps
        self.bodies: list[tuple[int, int]] = []              # of loops over exchanges that lack braces
        self.declared: dict[str, Declared] = {}              # the threads' own variables
        self.warps = Warps(self.check, self.declared)
        self.packs = Packs(self.check, self.declared)
        self.home: dict[str, int] = {}                       # the region that declares them
        self.together: dict[tuple[int, int], list[Declared]] = {}        # by statement
        self.spread: dict[tuple[int, int], set[str]] = {}    # of those the names that a pack keeps
        self.kept: set[str] = set()                          # those that outlive a region
        self.uniform = {name for name in kernel.parameters if self.check.fixed(name, *kernel.function.body)}

    def find(self) -> list[str]:
        """Fills in the regions. The parameters of which each thread has its own."""
        first, last = self.kernel.function.body
        self.check.body()
        own = [p for p in self.kernel.parameters if p not in self.uniform]
        for name, kind in zip(self.kernel.parameters, self.kernel.types):
            if name in own and "*" not in kind and set(kind.split()) - SCALAR:
                raise Refused(f"a change of {name}, which is no number")
        self.check.own |= set(own)
        self.sequence(statements(self.tokens, first + 1, last), first, last, tuple(own))
        self.find_kept(own)
        return own

    def sequence(self, found: list[Statement], before: int, last: int, scope: tuple[str, ...],
                 in_warp: bool = False) -> None:
        """Statements between the token `before` and the token `last`, in a scope that all threads share."""
        first = before + 1               # of the region that is growing
        only_declared, outside, group = True, set(self.uniform), None

        def cut(end: int, closes: bool = False, gives: list[Exchange] = ()) -> None:
            lanes = in_warp or group is not None
            self.region(Region(first, end, scope, lanes, group, list(gives), frozenset(self.uniform)))
            if closes and group is not None:
                self.groups[group] = (self.groups[group][0], end)
        for made in found:
            if (made.first, made.last) in self.check.groups.values():
                self.blank(made.first, made.last)
            elif self.is_common(made, only_declared):
                cut(made.first)
                first = made.last
            elif self.check.holds_barrier(made):
                cut(made.first, True)
                self.barrier(made, scope)
                first, only_declared, group = made.last, True, None
            elif holds_warp(self.tokens, made):
                if group is None and not in_warp:
                    group = len(self.groups)
                    self.groups.append((first, first))
                only_declared = False
                if made.kind == "simple" and not is_warp_barrier(self.tokens, made):
                    cut(made.first, gives=self.warps.exchanges(made, self.uniform))
                    first = made.first
                    scope += self.declare(made)
                else:
                    cut(made.first)
                    first = made.last
                    self.warp(made, scope)
            else:
                names = self.declare(made)
                only_declared = only_declared and bool(names)
                scope += names
        cut(last, True)
        self.uniform = outside

    def barrier(self, made: Statement, scope: tuple[str, ...]) -> None:
        if self.check.is_barrier(made):
            self.blank(made.first, made.last)
        else:
            self.structured(made, scope)

    def warp(self, made: Statement, scope: tuple[str, ...]) -> None:
        """A __syncwarp(), or a loop, an if or a block around warp operations."""
        if is_warp_barrier(self.tokens, made):
            self.warps.barrier(made, self.uniform)
            self.blank(made.first, made.last)
        else:
            self.structured(made, scope, True)

    def is_common(self, made: Statement, only_declared: bool) -> bool:
        """A declaration of shared memory or of a value that all threads have: one for the block."""
        if "__shared__" in self.words(made.first, made.last) and not self.check.holds_barrier(made):
            if not only_declared or made.kind != "simple":
                raise Refused("__shared__ behind or inside other statements")
            return True
        variables = declaration(self.tokens, made.first, made.last) if made.kind == "simple" else []
        if not variables or not only_declared:
            return False
        last = self.kernel.function.body[1]
        for v in variables:
            words = {t.text for t in self.tokens[slice(*v.type)]}
            if not (words <= SCALAR and v.initial and v.plain and v.declarator[1] == v.declarator[0] + 1
                    and self.check.uniform(*v.initial, self.uniform)
                    and self.check.fixed(v.name, made.last, last)):
                return False
        self.uniform |= {v.name for v in variables}
        return True

    def structured(self, made: Statement, scope: tuple[str, ...], in_warp: bool = False) -> None:
        """A loop, an if or a block around barriers: all threads go through it together."""
        if made.kind == "{":
            inner = statements(self.tokens, made.first + 1, made.last - 1)
            return self.sequence(inner, made.first, made.last - 1, scope, in_warp)
        if made.kind not in ("for", "if"):
            raise Refused(f"a barrier in a {made.kind}")
        first, last = made.header[0] + 1, made.header[1]
        added = set()
        if made.kind == "for":
            added = self.loop_variables(made, first)
        if not self.check.uniform(first, last, self.uniform | added):
            raise Refused("a barrier that depends on the thread")
        self.uniform |= added
        for body in made.bodies:
            if in_warp and body.kind != "{":
                self.bodies.append((body.first, body.last))
                self.sequence([body], body.first - 1, body.last, scope, True)
            elif in_warp:
                self.structured(body, scope, True)
            elif self.check.holds_barrier(body):
                self.barrier(body, scope)
            else:
                raise Refused("an arm of an if without a barrier")
        self.uniform -= added

    def loop_variables(self, made: Statement, first: int) -> set[str]:
        end = statements(self.tokens, first, made.header[1])[0].last
        variables = declaration(self.tokens, first, end)
        types = {t.text for v in variables for t in self.tokens[slice(*v.type)]}
        if not variables or not types <= SCALAR or not all(
                v.plain and v.initial and v.declarator[1] == v.declarator[0] + 1
                and self.check.fixed(v.name, made.header[1], made.last) for v in variables):
            raise Refused("a loop around a barrier that is not counted by a variable of its own")
        return {v.name for v in variables}

    def declare(self, made: Statement) -> tuple[str, ...]:
        """The variables that a statement of a region declares for the rest of its scope."""
        variables = declaration(self.tokens, made.first, made.last) if made.kind == "simple" else []
        for v in variables:
            if v.name in self.check.own or v.name in self.uniform or v.name in self.kernel.parameters:
                raise Refused(f"two variables {v.name}")
            self.declared[v.name] = v
            self.check.own.add(v.name)
            self.home[v.name] = len(self.regions)
        if variables:
            self.together[made.first, made.last] = variables
        return tuple(v.name for v in variables)

    def region(self, made: Region) -> None:
        if made.first < made.last or made.gives:
            for i in range(made.first, made.last):
                self.region_of[i] = len(self.regions)
            self.regions.append(made)

    def find_kept(self, own: list[str]) -> None:
        """A variable that is used in another region than its own is kept for each thread. If one of these may
        be a pointer, it may point at any variable, so that all are kept."""
        for i, region in self.region_of.items():
            name = self.tokens[i].text
            if self.home.get(name, region) != region and self.tokens[i].kind == "name":
                self.kept.add(name)
        kept = [self.declared[n] for n in self.kept]
        if any(map(self.is_no_value, kept)):
            raise Refused("a reference that outlives a region")
        if any(self.words(*v.type) - SCALAR - VECTORS or "*" in self.words(*v.declarator) for v in kept):
            self.kept |= {n for n, v in self.declared.items() if not self.is_no_value(v)}
        self.kept |= set(own)

    def is_no_value(self, v: Declared) -> bool:
        return bool({"&", "auto"} & self.words(v.type[0], v.declarator[1]))

    def no_way_out(self, found: list[Statement], loop: bool, switch: bool) -> None:
        """Refuses a break or continue that would leave the loop over the threads instead of its own."""
        for made in found:
            words = self.words(made.first, made.last)
            if made.kind == "{":
                self.no_way_out(statements(self.tokens, made.first + 1, made.last - 1), loop, switch)
            elif made.kind == "simple":
                if "continue" in words and not loop or "break" in words and not (loop or switch):
                    raise Refused("a way out of a loop around a barrier")
            else:
                inside = made.kind in ("for", "while", "do")
                self.no_way_out(made.bodies, loop or inside, switch or made.kind == "switch")

    def words(self, first: int, last: int) -> set[str]:
        return {t.text for t in self.tokens[first:last]}

    def piece(self, first: int, last: int) -> str:
        return self.file.text[self.tokens[first].start:self.tokens[last - 1].end] if first < last else ""

    def blank(self, first: int, last: int) -> None:
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        self.edits.append((start, end, ";" + "\n" * self.file.text.count("\n", start, end)))
