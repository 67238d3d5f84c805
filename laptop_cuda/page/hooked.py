"""A source's text in LLVM's language, made ready for WebAssembly, which tells no address of its code.

Before each call of a function with hooks the number of the call is stored where the runtime looks for the place
of a call. The numbers' lines, the variables and the entries are put into a table at the end; all else is internal."""
import re
from dataclasses import dataclass, field

CODE = 0xE0000000            # the number 0, beyond all memory
CALL = re.compile(r"\s+(?:%[\w.]+ = )?(?:(?:tail|musttail|notail) )?call .*?@(?P<name>[\w.$]+|\"[^\"]+\")\(")
INDIRECT = re.compile(r"\s+(?:%[\w.]+ = )?call .*?%[\w.]+\(")
GLOBAL = re.compile(r"(?P<name>@[\w.$]+|@\"[^\"]+\") = (?P<before>[\w() ]*?)(?P<kind>global|constant) (?P<rest>.*)")
LINKAGE = re.compile(r"\b(?:hidden|protected|dso_local|weak|weak_odr|linkonce|linkonce_odr|external|common|internal|"
                     r"private|available_externally|local_unnamed_addr|unnamed_addr) ")
COMDAT = re.compile(r",? comdat(\([^)]*\))?(?=[ ,]|$)")
BLOCK = re.compile(r"([\w.]+):\s+; preds = (.*)")
STEP = "  call void @__sanitizer_cov_trace_pc()"
ACCESS = re.compile(r"@__tsan_(?:read|write)\d+\(")
MOST = 60                    # accesses between two steps, fewer than Log::SPARE: no access waits
WAITS = "laptop_waits_"      # begins the names of functions that call through pointers, perhaps one that waits
BEGINS = re.compile(r"@__tsan_memcpy\((?=ptr (%[\w.]+), ptr @__const\.)")     # a variable with its first value
RETURNED = re.compile(r"(\s+%[\w.]+) = call ptr @llvm\.returnaddress\(i32 0\)")


@dataclass
class _Source:
    lines: list[str]
    files: tuple[str, ...]       # whose lines count, the source first
    places: list[int] = field(default_factory=lambda: [0])
    out: list[str] = field(default_factory=list)
    symbols: list[tuple] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)          # see look_ahead
    through: set[int] = field(default_factory=set)
    own: set[str] = field(default_factory=set)           # variables of the present function
    n_accesses: int = 0          # since the last step
    nobodys: bool = False        # of the present function: the compiler has written it, as a struct's copy

    def __post_init__(self):
        self.metadata = {m[1]: m[2] for line in self.lines if (m := re.match(r"!(\d+) = (.*)", line))}
        self.groups = {m[1] for line in self.lines
                       if "sanitize_thread" in line and (m := re.match(r"attributes #(\d+) =", line))}

    def place(self, line: str) -> int:
        """Of a call: the number of its file, from 0, and its line. Of code put in line elsewhere, the innermost
        place in the source, or else in a file beside it."""
        found, known = re.search(r"!dbg !(\d+)", line), []
        while found:
            at = self.metadata.get(found[1], "")
            scope, number = re.search(r"scope: !(\d+)", at), re.search(r"line: (\d+)", at)
            file = re.search(r"file: !(\d+)", self.metadata.get(scope[1], "")) if scope else None
            name = re.search(r'filename: "([^"]*)"', self.metadata.get(file[1], "")) if file else None
            known += [n << 24 | int(number[1]) for n, own in enumerate(self.files)
                      if name and number and f"/{name[1]}".endswith(f"/{own}")][:1]
            found = re.search(r"inlinedAt: !(\d+)", at)
        return next((place for place in known if place < 1 << 24), known[0] if known else 0)

    def look_ahead(self) -> None:
        """Finds lines: `through` begin functions that call through a pointer; `idle` note the step into a block to which the
        one before it alone leads, and nowhere else. A block that reports an index is no way: nobody comes back from it."""
        for n, line in enumerate(self.lines):
            if line.startswith("define "):
                start, at, before, after, steps, reports, busy = n, "", {}, {"": []}, {}, set(), {""}
            elif found := BLOCK.match(line):
                at = found[1]
                before[at], after[at] = re.findall(r"%([\w.]+)", found[2]), []
            elif line[:1] not in (" ", "}"):
                continue
            elif "label %" in line:
                after[at] += re.findall(r"label %([\w.]+)", line)
            elif STEP in line:
                steps[at] = n
            elif "@__ubsan_handle_" in line:
                reports.add(at)
            elif INDIRECT.match(line):
                self.through.add(start)
                busy.add(at)
            elif (found := CALL.match(line)) and not found["name"].startswith("llvm."):
                busy.add(at)
            elif line == "}":
                last = ""
                for block, step in steps.items():
                    ways = [way if way in after else "" for way in before.get(block, ()) if way not in reports]
                    if block not in reports and ways == [last] and not {*after[last]} - reports - {block}:
                        self.idle.add(step)
                    last = last if block in reports else block
                for block in steps.keys() - busy - reports:
                    ways = {*after[block]} - reports
                    if ways and all(way in steps and steps[way] not in self.idle and
                                    not {*before[way]} - reports - {block} for way in ways):
                        self.idle.add(steps[block])

    def convert(self) -> str:
        hooked = False
        self.look_ahead()
        for n, line in enumerate(self.lines):
            if n in self.idle:
                continue
            if n in self.through:        # and stays itself
                line = " noinline #".join(line.rsplit(" #", 1))
            if line.startswith("define "):
                hooked = bool(self.groups & set(re.findall(r"#(\d+)", line)))
                at = re.search(r"!dbg !(\d+)", line)
                self.own.clear()
                self.nobodys = bool(at) and "DIFlagArtificial" in self.metadata.get(at[1], "")
                self.out.append(COMDAT.sub("", "define internal " + LINKAGE.sub("", line.removeprefix("define "))))
                self.out += ["  %laptop.from = load ptr, ptr @laptop_called_at"] * hooked
                continue
            self.out.append(self._instruction(line) if hooked else self._global(line))
        text = "\n".join(self.out) + self._table()
        for n in self.through:
            name = re.search(r'@([\w.$]+|"[^"]+")\(', self.lines[n])[1]
            text = re.sub(rf"@{re.escape(name)}(?![\w.$])", f"@{WAITS}{n}", text)
        return text

    def _instruction(self, line: str) -> str:
        if " = alloca " in line:
            self.own.add(line.split()[0])
        if " call " not in line:
            return line
        if (begins := BEGINS.search(line)) and begins[1] in self.own:
            return line.replace("@__tsan_memcpy(", "@memcpy(")
        if returned := RETURNED.match(line):
            return f"{returned[1]} = bitcast ptr %laptop.from to ptr"
        called = CALL.match(line)
        if not called and not INDIRECT.match(line) or called and called["name"].startswith("llvm."):
            return line
        self.n_accesses = 0 if STEP in line else self.n_accesses + bool(ACCESS.search(line))
        if self.n_accesses > MOST:
            return f"{self._instruction(STEP + line[line.rindex(')') + 1:])}\n{self._instruction(line)}"
        if self.nobodys:                 # g++ copies where it is asked to
            return f"  store ptr %laptop.from, ptr @laptop_called_at\n{line}"
        number = len(self.places)
        self.places.append(self.place(line))
        return f"  store ptr inttoptr (i32 {CODE + number} to ptr), ptr @laptop_called_at\n{line}"

    def _global(self, line: str) -> str:
        """A variable becomes internal, and is put where the runtime can tell that it is the source's."""
        if line.startswith(("@llvm.used = ", "@laptop_called_at = ")):
            return ""                    # the table at the end has these
        found = GLOBAL.match(line)
        if not found or found["name"].startswith("@llvm.") or "external" in found["before"].split():
            return line
        rest, name = re.sub(r', section "[^"]*"', "", COMDAT.sub("", found["rest"])), found["name"]
        # The table at a source's end: nothing of it runs here. What a thread's variable begins with is read.
        if "laptop_" not in name or re.match(r"@__const\..*\.laptop_\w+$", name):
            rest = re.sub(r"(, align \d+)?(, !dbg !\d+)?$", r', section "laptop_kernels"\1\2', rest, count=1)
            constant = found["kind"] == "constant" or '"laptop_constants"' in found["rest"]
            self.symbols.append((name, _type(found["rest"]), plain_name(name.strip('@"')), constant))
        return f"{name} = internal {LINKAGE.sub('', found['before'])}{found['kind']} {rest}"

    def _table(self) -> str:
        n, made = len(self.symbols), "\n".join(self.out)
        copies = "" if re.search(r"^declare .*@memcpy\(", made, re.M) else "declare ptr @memcpy(ptr, ptr, i32)"
        texts = "".join(f'@laptop_name_{i} = internal constant [{len(s[2].encode()) + 1} x i8] c"{s[2]}\\00"\n'
                        for i, s in enumerate(self.symbols))
        rows = ", ".join(f"{{ptr, i32, ptr, i32}} {{ptr {at}, i32 ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) "
                         f"to i32), ptr @laptop_name_{i}, i32 {int(constant)}}}"
                         for i, (at, kind, _, constant) in enumerate(self.symbols))
        numbers = sorted({int(n) for n in re.findall(r"\ndefine .*@laptop_entry_(\d+)\(", made)})
        entries = ", ".join(f"ptr @laptop_entry_{n}" for n in numbers)
        places = ", ".join(f"i32 {p}" for p in self.places)
        return f"""
@laptop_called_at = external global ptr
{copies}
{texts}@laptop_symbols = internal constant [{n} x {{ptr, i32, ptr, i32}}] [{rows}]
@laptop_entries = internal constant [{len(numbers)} x ptr] [{entries}]
@laptop_lines = internal constant [{len(self.places)} x i32] [{places}]
@laptop_source = internal constant {{ptr, ptr, i32, ptr, i32}} {{ptr @laptop_entries, ptr @laptop_lines, \
i32 {len(self.places)}, ptr @laptop_symbols, i32 {n}}}, section "laptop_sources", align 4
@llvm.used = appending global [1 x ptr] [ptr @laptop_source], section "llvm.metadata"
"""


def hooked(text: str, files: tuple[str, ...]) -> str:
    """`text` with hooks; `files` are the names whose lines count."""
    # what the compiler has not made better before the hooks were in may be made better now
    text = re.sub(r"\b(?:optnone|(?:no|always)inline|sspstrong) |, !llvm\.loop !\d+", "", text)
    return _Source(text.split("\n"), files).convert()


def _type(rest: str) -> str:
    """The type with which a variable's definition begins."""
    depth = 0
    for at, letter in enumerate(rest):
        depth += (letter in "[{<(") - (letter in "]}>)")
        if letter == " " and not depth:
            return rest[:at]
    return rest


def plain_name(name: str) -> str:
    """weights of weights, of _ZL7weights, of _ZN2ns7weightsE; else as the compiler has it."""
    rest, parts = re.sub(r"^_Z(L(?=\d)|N(12_GLOBAL__N_1)?L?)?(?=\d)", "", name), []
    while (found := re.match(r"L?(\d+)", rest)) and rest != name:
        end = found.end() + int(found[1])
        parts, rest = [*parts, rest[found.end():end]], rest[end:]
    return "::".join(parts) or name
