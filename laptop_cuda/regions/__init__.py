"""A kernel as one function for a whole block: loops over its threads from barrier to barrier.

    float sum = 0;                   ->  float laptop_all_sum[1024];
                                         LAPTOP_EACH_THREAD { auto& sum = laptop_all_sum[laptop_i]; sum = 0; }
    for (int t = 0; t < n; t += 16) {    for (int t = 0; t < n; t += 16) {
        s[threadIdx.x] = x[t];               LAPTOP_EACH_THREAD { s[threadIdx.x] = x[t]; }
        __syncthreads();
        sum += s[0];                         LAPTOP_EACH_THREAD { auto& sum = ...; sum += s[0]; }
        __syncthreads();
    }                                    }

The compiler can then keep a loop's threads in vector registers, and nothing is switched. The threads take
their turns in the order in which fibers run them, from barrier to barrier, so that the results are the same
to the bit, of wrong kernels too. Shuffles make loops over the lanes of a warp, inside a loop over the warps
(`regions/warps.py`); where threads add up, they go side by side (`regions/packs.py`). Kernels that this does
not understand stay with fibers (`regions/check.py`); only plain launches use it. The function is a lambda at
the start of the kernel, so that it has its template arguments and runs however the kernel is launched."""
from collections.abc import Callable
from pathlib import Path

from ..rewrite import LEFT_EARLY, PASSED_BY, Loops, edits_of
from ..rewrite.passes import Edits
from ..text.diagnostics import CompileError
from ..text.outline import Outline
from ..text.signature import kernels
from ..text.statements import Declared, statements
from .check import SHUFFLES, Refused
from .find import Regions
from .packs import Pack
from .warps import Exchange


def loops_of(files: list[Outline], name: str) -> Loops:
    """Of those kernels that can run so; `name` is that of the first file."""
    found: Loops = {}
    for file in files:
        edits = edits_of(file)
        for kernel in kernels(file):
            function = kernel.function
            known = any(f is function for f in file.functions)       # else a macro wrote it
            unusual = {"&", "."} & set("".join(kernel.types)) or " " in "".join(kernel.parameters)
            if not known or unusual or kernel.choices:
                continue         # a reference, a pack, a parameter without a name, an #if among them
            try:
                made = Writer(files, file, kernel).text(edits)
            except (Refused, IndexError):        # the latter where a statement has no end
                continue
            line = file.line(function.body[0])
            found[id(function)] = f'{made}\n#line {line} "{file.path.name if file.path else name}"\n'
    return found


def loops_or_none(loops: Loops, built: Callable[[Loops], Path]) -> Path:
    """The library that `built` makes with the loops; without them if it does not compile so."""
    try:
        return built(loops)
    except CompileError:
        if not loops:
            raise
        return built({})         # the source is wrong, or it does what this does not know


OPEN = " LAPTOP_EACH_THREAD {"
OPEN_LANES = " LAPTOP_EACH_LANE {"
OPEN_PACKS = " LAPTOP_EACH_PACK {"
OPEN_PACKS_OF_LANES = " LAPTOP_EACH_PACK_OF_LANES {"


class Writer(Regions):
    """The function for a whole block, from the kernel's regions."""

    def text(self, of_file: Edits) -> str:
        """Runs the block and returns if it is asked for; `of_file` are the edits without this."""
        function = self.kernel.function
        first, last = function.body
        own = self.find()
        stores = [""] * len(self.groups)     # before the loops over the warps
        for i, region in enumerate(self.regions):
            made = self.write(i)
            if region.group is not None:
                stores[region.group] += made
        self.open_and_close(stores)
        start, end = self.tokens[first].end, self.tokens[last].start
        edits = Edits()
        # the return becomes a goto, and nobody is watched
        edits.list = [edit for edit in of_file.list if edit[-1] not in (LEFT_EARLY, PASSED_BY)]
        for a, b, new in self.edits:
            if edits.within(a, b):
                raise Refused("changed twice")
            edits.list.append((a, b, 0, new))
        for place, new, order in self.inserted:
            edits.insert(place, new, order)
        given = ", ".join(self.kernel.parameters)
        apart, index = "false", ""
        if self.check.blocks_apart():
            apart, index = f"laptop::trivial({given})", " const laptop::Index blockIdx = laptop::own_block();"
        return (f" LAPTOP_IF_LOOPS({apart}) return []{self.file.source(*function.parameters)} LAPTOP_APART {{"
                f"{index} const laptop::Index laptop_size = blockDim; {self.given()}{self.copies(own)}"
                f"{edits.apply(self.file.text, start, end)} }}({given});")

    def copies(self, names: list[str]) -> str:
        """Each thread's own copy of the parameters that the kernel changes."""
        text = "".join(f"LAPTOP_COPY_OF({n}) laptop_all_{n}[1024]; " for n in names)
        stores = "".join(f"laptop_all_{n}[laptop_i] = {n}; " for n in names)
        return text + (f"{OPEN} {stores}}} " if names else "")

    def given(self) -> str:
        """What the warps' exchanges need."""
        room = "".join(f"alignas(16) unsigned char laptop_given_{x.first}[2048]; " for x in self.warps.all)
        return f"LAPTOP_WARPS; {room}" if self.groups else ""

    def open_and_close(self, stores: list[str]) -> None:
        """The loops over the warps, and braces where a loop in them has none."""
        for (first, last), text in [*zip(self.groups, stores), *((body, None) for body in self.bodies)]:
            self.insert(first, " {" if text is None else f"{text} LAPTOP_EACH_WARP {{", 2)
            self.insert(last, "}", 1)

    def insert(self, behind: int, text: str, order: int) -> None:
        """Behind the token before this one; ends come first there, the inner one before the outer one."""
        self.inserted.append((self.tokens[behind - 1].end, text, order))

    def write(self, number: int) -> str:
        """The loop over the threads around a region. Answers what it keeps, if that is declared elsewhere."""
        region = self.regions[number]
        first, last = region.first, region.last
        used = self.words(first, last).union(*(self.words(*x.value) for x in region.gives))
        self.no_way_out(statements(self.tokens, first, last), False, False)
        known = "".join(f" auto& {n} = laptop_all_{n}[laptop_i];" for n in region.scope
                        if n in self.kept and n in used and self.home.get(n) != number)
        made = "".join(self.storage(self.declared[n]) for n in region.scope
                       if n in self.kept and self.home.get(n) == number)
        opening, closing, opened = OPEN_LANES if region.lanes else OPEN, "}", ""
        closed = "".join(f" laptop::laptop_give(laptop_given_{x.first}, laptop_lane, {self.piece(*x.value)});"
                         for x in region.gives)
        if self.in_packs(number, closed):
            opening, closing = OPEN_PACKS_OF_LANES if region.lanes else OPEN_PACKS, "});"
            known, closed = "", ""
        self.rewrite(first, last)
        if "return" in used:
            opened, closed = " {", "} laptop_next:; "
            self.leave_by_goto(number)
        here = made if region.group is None else ""
        self.insert(first, f"{here}{opening}{known}{opened}", 3)
        self.insert(last, closed + closing, 0 if first < last else 3)
        return "" if here else made

    def in_packs(self, number: int, end: str) -> bool:
        """Makes a region's threads run side by side, if they can; `end` is what each does last."""
        region, pack = self.regions[number], Pack(self.packs, self, number)
        try:
            if not self.packs.fits(region.first, region.last, region.uniform):
                return False
            pack.make(end)
        except Refused:
            return False
        self.edits += pack.edits
        self.inserted += pack.inserted
        self.together |= pack.together
        self.spread |= pack.spread
        return True

    def rewrite(self, first: int, last: int) -> None:
        """The declarations of what is kept, and the shuffles, between these tokens."""
        done = []
        for (a, b), variables in self.together.items():
            spread = self.spread.get((a, b), set())
            if first <= a < last and (spread or self.kept & {v.name for v in variables}):
                text = "".join(self.declared_again(v, spread) for v in variables)
                self.change(a, b, text)
                done.append((a, b))
        for x in self.warps.all:
            if first <= x.first < last and not any(a <= x.first < b for a, b in done):
                self.change(x.first, x.last, self.taken(x))

    def change(self, first: int, last: int, text: str) -> None:
        """Replaces tokens; the lines keep their numbers."""
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        lines = self.file.text.count("\n", start, end) - text.count("\n")
        self.edits.append((start, end, text + "\n" * lines))

    def taken(self, x: Exchange) -> str:
        """In place of a shuffle."""
        value, more = self.piece(*x.value), ", ".join(self.piece(*a) for a in x.more)
        width = ", laptop_warp" if len(x.more) == 1 else ""
        return (f"laptop::{SHUFFLES[x.name]}<std::decay_t<decltype({value})>>"
                f"(laptop_given_{x.first}, laptop_lane, laptop_lanes, {more}{width})")

    def piece(self, first: int, last: int) -> str:
        """The text of tokens, with their shuffles replaced."""
        found = [x for x in self.warps.all if first <= x.first < last]
        text, at = "", first
        for x in sorted(found, key=lambda x: x.first):
            if x.first > at:
                text += self.file.text[self.tokens[at].start:self.tokens[x.first].start]
            text, at = text + self.taken(x), x.last
        if not found:
            return super().piece(first, last)
        return text + (self.file.text[self.tokens[at - 1].end:self.tokens[last - 1].end] if at < last else "")

    def leave_by_goto(self, number: int) -> None:
        first, last = self.regions[number].first, self.regions[number].last
        if number != len(self.regions) - 1 or last != self.kernel.function.body[1]:
            raise Refused("a return before a barrier")
        for i in range(first, last):
            if self.tokens[i].text == "return":
                self.edits.append((self.tokens[i].start, self.tokens[i].end, "goto laptop_next"))

    def storage(self, v: Declared, whose: str = "all", n: str = "1024") -> str:
        """For a thread's variable: an array over the threads of a block, or of a pack."""
        first, last = v.declarator
        at = next(i for i in range(first, last) if self.tokens[i].text == v.name)
        kind = f"laptop_type_{v.name}"
        text = (f" typedef {self.piece(*v.type)} {self.piece(first, at)} {kind} {self.piece(at + 1, last)};"
                f" LAPTOP_FITS({kind}); std::remove_const_t<{kind}> laptop_{whose}_{v.name}[{n}];")
        return text.replace("\n", " ")

    def declared_again(self, v: Declared, spread: set[str]) -> str:
        """One variable's share of a declaration inside a region."""
        if not v.plain:
            raise Refused(f"the initial value of {v.name}")
        initial = self.piece(*v.initial) if v.initial else ""
        if v.name not in self.kept | spread:
            given = f" = {initial}" if initial else ""
            return f"{self.piece(*v.type)} {self.piece(*v.declarator)}{given}; "
        place = f"laptop_pack_{v.name}[laptop_k]" if v.name in spread else f"laptop_all_{v.name}[laptop_i]"
        made = f"auto& {v.name} = {place}; "
        if not initial:
            return made
        if initial.startswith("{") or self.tokens[v.declarator[1] - 1].text == "]":
            kind = f"laptop_type_{v.name}"
            return made + (f"{{ {kind} laptop_initial = {initial}; "
                           f"__builtin_memcpy((void*)&{v.name}, &laptop_initial, sizeof({kind})); }} ")
        return f"{made}{v.name} = {initial}; "
