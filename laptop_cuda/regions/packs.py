"""Threads side by side, where each adds up one number after another (`regions/`).

    for (int r = 0; r < 8; ++r) {            ->  for (int r = 0; r < 8; ++r) {
        float sum = 0;                               float laptop_pack_sum[4]; ...
        for (int k = 0; k < n; ++k)                  for (int k = 0; k < n; ++k) LAPTOP_EACH_OF_PACK {
            sum += s[i][k];                              auto& sum = laptop_pack_sum[laptop_k]; sum += ...; }
        ...                                          ...

The order of a sum's additions must stay, so each waits for the one before; those of four threads need not
wait for each other. The threads of a pack go together through the loops that all threads have in common, and
through an `if` where all of them agree. `regions/quiet.py` says where that cannot be seen."""
from ..text.statements import Declared, Statement, declaration, statements
from .check import Refused
from .quiet import Packs


class Pack:
    """The changes that make one region run in packs; `writer` is the Writer of regions/."""

    def __init__(self, packs: Packs, writer, number: int):
        self.packs, self.tokens, self.writer = packs, packs.tokens, writer
        self.region, self.number = writer.regions[number], number
        self.each = " LAPTOP_EACH_LANE_OF_PACK {" if self.region.lanes else " LAPTOP_EACH_OF_PACK {"
        self.edits: list[tuple[int, int, str]] = []
        self.inserted: list[tuple[int, str, int]] = []
        self.together: dict[tuple[int, int], list[Declared]] = {}    # declarations that are parted, and
        self.spread: dict[tuple[int, int], set[str]] = {}            # of them what is an array over the pack

    def make(self, end: str) -> None:
        """Fills in the changes inside the region's loop; `end` is what each thread does last."""
        first, last = self.region.first, self.region.last
        scope = {n: f"laptop_all_{n}[laptop_i]" for n in self.region.scope
                 if n in self.writer.kept and self.writer.home.get(n) != self.number}
        gives = set().union(*(self.writer.words(*x.value) for x in self.region.gives))
        changed = [n for n in scope if self.packs.changes(n, first, last)]
        scope |= {n: f"laptop_pack_{n}[laptop_k]" for n in changed}
        begin = "".join(f" std::decay_t<decltype(*laptop_all_{n})> laptop_pack_{n}[laptop::PACK];"
                        for n in changed)
        come = "".join(f" laptop_pack_{n}[laptop_k] = laptop_all_{n}[laptop_i];" for n in changed)
        go = "".join(f" laptop_all_{n}[laptop_i] = laptop_pack_{n}[laptop_k];" for n in changed)
        if changed:
            self.insert(first, f"{begin}{self.each}{come} }}", 4)
        self.sequence(statements(self.tokens, first, last), scope, self.region.uniform, 0, gives)
        if end or changed:
            self.insert(last, f"{self.each}{self.known(scope, gives)}{end}{go}}}", 0)

    def sequence(self, found: list[Statement], scope: dict[str, str], uniform: set[str], depth: int,
                 gives: set[str] = frozenset()) -> None:
        """Statements that the threads of a pack go through together: loops over the pack around what they do
        alone. `scope` says where each of a thread's variables is."""
        begin = 0
        for i, made in enumerate(found):
            if self.packs.adds(made, uniform):
                self.alone(found[begin:i], found[i:], scope, depth, gives)
                self.in_step(made, scope, uniform, depth + 1)
                begin = i + 1
        self.alone(found[begin:], [], scope, depth, gives)

    def alone(self, piece: list[Statement], rest: list[Statement], scope: dict[str, str], depth: int,
              gives: set[str]) -> None:
        if not piece:
            return
        first, last = piece[0].first, piece[-1].last
        used = self.writer.words(first, last)
        later = gives | (self.writer.words(rest[0].first, rest[-1].last) if rest else set())
        known, storage, added = self.known(scope, used), "", {}
        for made in piece:
            variables = declaration(self.tokens, made.first, made.last) if made.kind == "simple" else []
            for v in variables:
                if v.name in scope or depth and v.name in self.writer.declared:
                    raise Refused(f"two variables {v.name}")
                if v.name in self.writer.kept:
                    added[v.name] = f"laptop_all_{v.name}[laptop_i]"
                elif v.name in later:
                    if not self.packs.is_number(v):
                        raise Refused(f"{v.name}, which is no number")
                    self.together[made.first, made.last] = variables
                    self.spread.setdefault((made.first, made.last), set()).add(v.name)
                    storage += self.writer.storage(v, "pack", "laptop::PACK")
                    added[v.name] = f"laptop_pack_{v.name}[laptop_k]"
        scope |= added
        self.insert(first, f"{storage}{self.each}{known}", 4 + 2 * depth)
        self.insert(last, "}", -1 - 2 * depth)

    def in_step(self, made: Statement, scope: dict[str, str], uniform: set[str], depth: int) -> None:
        if made.kind == "{":
            return self.block(made, scope, uniform, depth)
        if made.kind == "for":
            uniform = uniform | self.packs.counted(made, uniform)
        elif not self.packs.check.uniform(made.header[0] + 1, made.header[1], uniform):
            self.if_agreed(made, scope, depth)
        for body in made.bodies:
            self.block(body, scope, uniform, depth)

    def block(self, made: Statement, scope: dict[str, str], uniform: set[str], depth: int) -> None:
        if made.kind != "{":
            self.insert(made.first, " {", 3 + 2 * depth)
            self.insert(made.last, "}", -2 * depth)
        self.sequence(self.packs.inside(made), dict(scope), uniform, depth)

    def if_agreed(self, made: Statement, scope: dict[str, str], depth: int) -> None:
        """An `if` becomes a call of what it guards, for the whole pack or thread by thread."""
        (opening, close), tokens = made.header, self.tokens
        known = self.known(scope, self.writer.words(opening, close))
        asked = f"{{ bool laptop_if[laptop::PACK];{self.each}{known} laptop_if[laptop_k] = bool("
        self.edits.append((tokens[made.first].start, tokens[opening].end, asked))
        of_all = "); } laptop::together(laptop_if, laptop_at, laptop_width, LAPTOP_TOGETHER {"
        self.edits.append((tokens[close].start, tokens[close].end, of_all))
        self.insert(made.last, "}); }", 1 - 2 * depth)

    def known(self, scope: dict[str, str], used: set[str]) -> str:
        return "".join(f" auto& {n} = {where};" for n, where in scope.items() if n in used)

    def insert(self, behind: int, text: str, order: int) -> None:
        """As Writer.insert: ends come first, the inner one before the outer one, then beginnings."""
        self.inserted.append((self.tokens[behind - 1].end, text, order))
