"""A kernel as one function for a whole block: loops over its threads from barrier to barrier.

    float sum = 0;                        ->  float laptop_all_sum[1024];
    for (int t = 0; t < n; t += 16) {         LAPTOP_EACH_THREAD { auto& sum = laptop_all_sum[laptop_i]; sum = 0; }
        s[threadIdx.x] = x[t];                for (int t = 0; t < n; t += 16) {
        __syncthreads();                          LAPTOP_EACH_THREAD { s[threadIdx.x] = x[t]; }
        sum += s[0];                              LAPTOP_EACH_THREAD { auto& sum = ...; sum += s[0]; }
        __syncthreads();                      }
    }

The compiler can then keep a loop's threads in vector registers, and nothing is switched. The threads take their
turns in the order in which fibers run them, from barrier to barrier, so that the results are the same to the bit, of
wrong kernels too. Kernels that this does not understand stay with fibers (`regions_check.py`); only plain launches in
forward order use it.
"""
from __future__ import annotations

from .outline import Function, Outline
from .regions_check import Checker, Refused, holds_barrier, is_barrier
from .regions_text import SCALAR, Declared, Statement, declaration, statements
from .rewrite import edits_of
from .signature import KernelText
from .table import guarded

OPEN = " LAPTOP_EACH_THREAD {"
CLOSE = "}"
VECTORS = {"half", "__half", "half2", "__nv_bfloat16", "uchar4", "int2", "int4", "uint2", "uint4", "float2", "float3",
           "float4", "double2"}


def whole_blocks(files: list[Outline], wanted: list[tuple[KernelText, str]], name: str) -> list[tuple[int, str]]:
    """(number, C++) of those wanted kernels that can run so. The C++ defines laptop_whole_<number>."""
    found = []
    for number, (kernel, instance) in enumerate(wanted):
        file = next((f for f in files if any(f is kernel.function for f in f.functions)), None)
        if file is None or kernel.choices:       # a macro wrote it, or an #if is in its parameter list
            continue
        try:
            text = _Kernel(files, file, kernel).text(number, file.path.name if file.path else name)
        except Refused:
            continue
        space = kernel.function.namespace
        full = f"::{space}::" if space else "::"
        entry = (f"LAPTOP_EXPORT void laptop_whole_entry_{number}(void** args) "
                 f"{{ laptop::call(&{full}laptop_whole_{number}{instance}, args); }}\n")
        found.append((number, guarded(kernel.conditions, text + entry)))
    return found


class _Kernel:
    """One kernel's body and the changes to it."""

    def __init__(self, files: list[Outline], file: Outline, kernel: KernelText):
        self.file, self.kernel, self.tokens = file, kernel, file.tokens
        self.check = Checker(files, file, kernel.function)
        self.edits: list[tuple[int, int, str]] = []          # start, end, what it becomes
        self.region_of: dict[int, int] = {}                  # of a token: the region that it is in
        self.regions: list[tuple[int, int, tuple[str, ...]]] = []    # first, last, variables in scope
        self.declared: dict[str, Declared] = {}              # the threads' own variables
        self.home: dict[str, int] = {}                       # the region that declares them
        self.together: dict[tuple[int, int], list[Declared]] = {}        # by statement
        self.kept: set[str] = set()                          # those that outlive a region
        self.uniform = {name for name in kernel.parameters if self.check.fixed(name, *kernel.function.body)}

    def text(self, number: int, name: str) -> str:
        function: Function = self.kernel.function
        first, last = function.body
        self.check.body()
        own = [p for p in self.kernel.parameters if p not in self.uniform]
        self.sequence(statements(self.tokens, first + 1, last), first, last, tuple(own))
        self.check.own |= set(own)
        self.find_kept(own)
        for number_of_region in range(len(self.regions)):
            self.write(number_of_region)
        template = f"template <{', '.join(self.kernel.template)}> " if self.kernel.template else ""
        parameters = self.file.text[self.tokens[function.parameters[0]].start:self.tokens[function.parameters[1]].end]
        start, end = self.tokens[first].end, self.tokens[last].start
        edits = edits_of(self.file)
        for a, b, new in self.edits:
            if edits.within(a, b) and a != b:
                raise Refused("changed twice")
            edits.replace(a, b, new)
        line = self.file.line(function.parameters[0])
        made = (f'\n#line {line} "{name}"\n{template}static void laptop_whole_{number}{parameters} {{'
                f" const laptop::Index laptop_size = blockDim; {self.copies(own)}"
                f'{edits.apply(self.file.text, start, end)} }}\n#line 1 "entries"\n')
        space = function.namespace
        return f"namespace {space} {{{made}}}\n" if space else made

    def copies(self, names: list[str]) -> str:
        """Each thread's own copy of the parameters that the kernel changes."""
        text = "".join(f"std::remove_reference_t<decltype(+{n})> laptop_all_{n}[1024]; " for n in names)
        stores = "".join(f"laptop_all_{n}[laptop_i] = {n}; " for n in names)
        return text + (f"{OPEN} {stores}{CLOSE} " if names else "")

    # ---- which statements form a region
    def sequence(self, found: list[Statement], before: int, last: int, scope: tuple[str, ...]) -> None:
        """Statements between the token `before` and the token `last`, in a scope that all threads share."""
        first = before + 1               # of the region that is growing
        only_declared, outside = True, set(self.uniform)
        for made in found:
            if self.is_common(made, only_declared):
                self.region(first, made.first, scope)
                first = made.last
            elif is_barrier(self.tokens, made):
                self.region(first, made.first, scope)
                self.blank(made.first, made.last)
                first, only_declared = made.last, True
            elif holds_barrier(self.tokens, made):
                self.region(first, made.first, scope)
                self.structured(made, scope)
                first, only_declared = made.last, True
            else:
                names = self.declare(made)
                only_declared = only_declared and bool(names)
                scope += names
        self.region(first, last, scope)
        self.uniform = outside

    def is_common(self, made: Statement, only_declared: bool) -> bool:
        """A declaration of shared memory or of a value that all threads have: one for the block."""
        words = {t.text for t in self.tokens[made.first:made.last]}
        if "__shared__" in words:
            if not only_declared:
                raise Refused("__shared__ behind other statements")
            return True
        variables = declaration(self.tokens, made.first, made.last) if made.kind == "simple" else []
        if not variables or not only_declared:
            return False
        last = self.kernel.function.body[1]
        for v in variables:
            words = {t.text for t in self.tokens[slice(*v.type)]}
            if not (words <= SCALAR and v.initial and v.plain and v.declarator[1] == v.declarator[0] + 1
                    and self.check.uniform(*v.initial, self.uniform) and self.check.fixed(v.name, made.last, last)):
                return False
        self.uniform |= {v.name for v in variables}
        return True

    def structured(self, made: Statement, scope: tuple[str, ...]) -> None:
        """A loop, an if or a block around barriers: all threads go through it together."""
        if made.kind == "{":
            inner = statements(self.tokens, made.first + 1, made.last - 1)
            return self.sequence(inner, made.first, made.last - 1, scope)
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
            if is_barrier(self.tokens, body):
                self.blank(body.first, body.last)
            elif holds_barrier(self.tokens, body):
                self.structured(body, scope)
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

    def region(self, first: int, last: int, scope: tuple[str, ...]) -> None:
        if first < last:
            for i in range(first, last):
                self.region_of[i] = len(self.regions)
            self.regions.append((first, last, scope))

    # ---- what the regions become
    def find_kept(self, own: list[str]) -> None:
        """A variable that is used in another region than its own is kept for each thread. If one of these may
        be a pointer, it may point at any variable, so that all are kept."""
        for i, region in self.region_of.items():
            name = self.tokens[i].text
            if self.home.get(name, region) != region and self.tokens[i].kind == "name":
                self.kept.add(name)
        if any({"&", "auto"} & self.words(v.type[0], v.declarator[1]) for v in map(self.declared.get, self.kept)):
            raise Refused("a reference that outlives a region")
        if any(self.words(*v.type) - SCALAR - VECTORS or "*" in self.words(*v.declarator)
               for v in map(self.declared.get, self.kept)):
            self.kept |= {n for n, v in self.declared.items()
                          if not {"&", "auto"} & self.words(v.type[0], v.declarator[1])}
        self.kept |= set(own)

    def words(self, first: int, last: int) -> set[str]:
        return {t.text for t in self.tokens[first:last]}

    def piece(self, first: int, last: int) -> str:
        return self.file.text[self.tokens[first].start:self.tokens[last - 1].end] if first < last else ""

    def blank(self, first: int, last: int) -> None:
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        self.edits.append((start, end, ";" + "\n" * self.file.text.count("\n", start, end)))

    def write(self, number: int) -> None:
        """The loop over the threads around a region, and the declarations in it."""
        first, last, scope = self.regions[number]
        used = self.words(first, last)
        self.no_way_out(statements(self.tokens, first, last), False, False)
        known = "".join(f" auto& {n} = laptop_all_{n}[laptop_i];" for n in scope
                        if n in self.kept and n in used and self.home.get(n) != number)
        made = "".join(self.storage(self.declared[n]) for n in scope if n in self.kept and self.home.get(n) == number)
        for (a, b), variables in self.together.items():
            if first <= a < last and self.kept & {v.name for v in variables}:
                text = "".join(self.declared_again(v) for v in variables)
                start, end = self.tokens[a].start, self.tokens[b - 1].end
                lines = self.file.text.count("\n", start, end) - text.count("\n")
                self.edits.append((start, end, text + "\n" * lines))
        opened, closed = "", ""
        if "return" in used:
            if number != len(self.regions) - 1 or last != self.kernel.function.body[1]:
                raise Refused("a return before a barrier")
            opened, closed = " {", "} laptop_next:; "
            for i in range(first, last):
                if self.tokens[i].text == "return":
                    self.edits.append((self.tokens[i].start, self.tokens[i].end, "goto laptop_next"))
        place = self.tokens[first - 1].end
        self.edits.append((place, place, f"{made}{OPEN}{known}{opened}"))
        place = self.tokens[last - 1].end
        self.edits.append((place, place, closed + CLOSE))

    def storage(self, v: Declared) -> str:
        """For a thread's variable: an array over the threads of a block."""
        first, last = v.declarator
        at = next(i for i in range(first, last) if self.tokens[i].text == v.name and self.tokens[i].kind == "name")
        kind = f"laptop_type_{v.name}"
        return (f" typedef {self.piece(*v.type)} {self.piece(first, at)} {kind} {self.piece(at + 1, last)};"
                f" LAPTOP_FITS({kind}); std::remove_const_t<{kind}> laptop_all_{v.name}[1024];").replace("\n", " ")

    def declared_again(self, v: Declared) -> str:
        """One variable's share of a declaration inside a region."""
        initial = self.piece(*v.initial) if v.initial else ""
        if v.name not in self.kept:
            rest = self.tokens[v.initial[1] if v.initial else v.declarator[1]]
            text = self.file.text[self.tokens[v.declarator[0]].start:self.tokens[v.declarator[1] - 1].end]
            if not v.plain:
                raise Refused(f"{v.name} before {rest.text}")
            return f"{self.piece(*v.type)} {text}{' = ' + initial if initial else ''}; "
        if not v.plain:
            raise Refused(f"the initial value of {v.name}")
        made = f"auto& {v.name} = laptop_all_{v.name}[laptop_i]; "
        if not initial:
            return made
        if initial.startswith("{") or self.tokens[v.declarator[1] - 1].text == "]":
            kind = f"laptop_type_{v.name}"
            return made + (f"{{ {kind} laptop_initial = {initial}; "
                           f"__builtin_memcpy((void*)&{v.name}, &laptop_initial, sizeof({kind})); }} ")
        return f"{made}{v.name} = {initial}; "

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
