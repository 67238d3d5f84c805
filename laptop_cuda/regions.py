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
(`regions_warps.py`). Kernels that this does not understand stay with fibers
(`regions_check.py`); only plain launches use it.
"""
from __future__ import annotations

from .outline import Outline
from .regions_check import SHUFFLES, Refused
from .regions_find import Regions
from .regions_text import Declared, statements
from .regions_warps import Exchange
from .rewrite import LEFT_EARLY, edits_of
from .signature import KernelText
from .table import guarded


def whole_blocks(files: list[Outline], wanted: list[tuple[KernelText, str]],
                 name: str) -> list[tuple[int, str]]:
    """(number, C++) of those wanted kernels that can run so. The C++ defines laptop_whole_<number>."""
    found = []
    for number, (kernel, instance) in enumerate(wanted):
        file = next((f for f in files if any(f is kernel.function for f in f.functions)), None)
        if file is None or kernel.choices or any("&" in kind for kind in kernel.types):
            continue             # a macro wrote it, an #if is in its parameter list, or it takes references
        try:
            text = Writer(files, file, kernel).text(number, file.path.name if file.path else name)
        except (Refused, IndexError):        # the latter where a statement has no end: the compiler says so
            continue
        space = kernel.function.namespace
        full = f"::{space}::" if space else "::"
        entry = (f"LAPTOP_EXPORT void laptop_whole_entry_{number}(void** args) "
                 f"{{ laptop::call(&{full}laptop_whole_{number}{instance}, args); }}\n")
        found.append((number, guarded(kernel.conditions, text + entry)))
    return found


OPEN = " LAPTOP_EACH_THREAD {"
OPEN_LANES = " LAPTOP_EACH_LANE {"


class Writer(Regions):
    """The function for a whole block, from the kernel's regions."""

    def text(self, number: int, name: str) -> str:
        function = self.kernel.function
        first, last = function.body
        own = self.find()
        stores = [""] * len(self.groups)     # before the loops over the warps
        for i, region in enumerate(self.regions):
            made = self.write(i)
            if region.group is not None:
                stores[region.group] += made
        self.open_and_close(stores)
        template = f"template <{', '.join(self.kernel.template)}> " if self.kernel.template else ""
        parameters = self.piece(function.parameters[0], function.parameters[1] + 1)
        start, end = self.tokens[first].end, self.tokens[last].start
        edits = edits_of(self.file)
        edits.list = [edit for edit in edits.list if edit[-1] != LEFT_EARLY]     # its return becomes a goto
        for a, b, new in self.edits:
            if edits.within(a, b):
                raise Refused("changed twice")
            edits.replace(a, b, new)
        for place, new, order in self.inserted:
            edits.insert(place, new, order)
        line = self.file.line(function.parameters[0])
        made = (f'\n#line {line} "{name}"\n{template}static void laptop_whole_{number}{parameters} {{'
                f" const laptop::Index laptop_size = blockDim; {self.given()}{self.copies(own)}"
                f'{edits.apply(self.file.text, start, end)} }}\n#line 1 "entries"\n')
        space = function.namespace
        return f"namespace {space} {{{made}}}\n" if space else made

    def copies(self, names: list[str]) -> str:
        """Each thread's own copy of the parameters that the kernel changes."""
        text = "".join(f"LAPTOP_COPY_OF({n}) laptop_all_{n}[1024]; " for n in names)
        stores = "".join(f"laptop_all_{n}[laptop_i] = {n}; " for n in names)
        return text + (f"{OPEN} {stores}}} " if names else "")

    def given(self) -> str:
        """What the warps' exchanges need."""
        room = "".join(f"alignas(16) unsigned char laptop_given_{x.first}[2048]; "
                       for x in self.warps.all)
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
        self.rewrite(first, last)
        opened = ""
        closed = "".join(f" laptop::laptop_give(laptop_given_{x.first}, laptop_lane, {self.piece(*x.value)});"
                         for x in region.gives)
        if "return" in used:
            opened, closed = " {", "} laptop_next:; "
            self.leave_by_goto(number)
        here = made if region.group is None else ""
        self.insert(first, f"{here}{OPEN_LANES if region.lanes else OPEN}{known}{opened}", 3)
        self.insert(last, closed + "}", 0 if first < last else 3)
        return "" if here else made

    def rewrite(self, first: int, last: int) -> None:
        """The declarations of what is kept, and the shuffles, between these tokens."""
        done = []
        for (a, b), variables in self.together.items():
            if first <= a < last and self.kept & {v.name for v in variables}:
                text = "".join(self.declared_again(v) for v in variables)
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

    def storage(self, v: Declared) -> str:
        """For a thread's variable: an array over the threads of a block."""
        first, last = v.declarator
        at = next(i for i in range(first, last) if self.tokens[i].text == v.name)
        kind = f"laptop_type_{v.name}"
        text = (f" typedef {self.piece(*v.type)} {self.piece(first, at)} {kind} {self.piece(at + 1, last)};"
                f" LAPTOP_FITS({kind}); std::remove_const_t<{kind}> laptop_all_{v.name}[1024];")
        return text.replace("\n", " ")

    def declared_again(self, v: Declared) -> str:
        """One variable's share of a declaration inside a region."""
        if not v.plain:
            raise Refused(f"the initial value of {v.name}")
        initial = self.piece(*v.initial) if v.initial else ""
        if v.name not in self.kept:
            given = f" = {initial}" if initial else ""
            return f"{self.piece(*v.type)} {self.piece(*v.declarator)}{given}; "
        made = f"auto& {v.name} = laptop_all_{v.name}[laptop_i]; "
        if not initial:
            return made
        if initial.startswith("{") or self.tokens[v.declarator[1] - 1].text == "]":
            kind = f"laptop_type_{v.name}"
            return made + (f"{{ {kind} laptop_initial = {initial}; "
                           f"__builtin_memcpy((void*)&{v.name}, &laptop_initial, sizeof({kind})); }} ")
        return f"{made}{v.name} = {initial}; "
