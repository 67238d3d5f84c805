"""What an error message is made of: who did it, where in the source, to which element of which array."""
import math
import tomllib
from pathlib import Path

from ..toolchain.lines import Place

BLOCK_ONLY = 2               # LAPTOP_BLOCK_ONLY of engine.h
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
VERBS = ("reads", "writes", "atomically updates", "waits at", "frees", "touches")


class Facts:
    def __init__(self, error, result):
        self.e, self.result = error, result
        self.kind, self.reason = error.kind.decode(), (error.reason or b"").decode()
        self.block_only = error.has_thread == BLOCK_ONLY
        self.detail = (error.detail or b"").decode(errors="replace")
        pcs = [p.pc for p in (error.who, error.other)]
        found = result.places(pcs)
        self.place, self.other_place = (found[pc] for pc in pcs)
        if error.file:
            named = next((n for n in result.files if error.file.decode().endswith(n)), None)
            self.place = Place(named, error.line) if named else self.place
        self.memory = result.memories[error.memory] if error.memory >= 0 else None

    def said(self, reason: str | None = None, **gaps) -> tuple[str, str]:
        """What happened and the usual cause, by words.toml: of the runtime's reason, or of another."""
        of_kind = WORDS[self.kind]
        texts = of_kind.get(self.reason if reason is None else reason, of_kind.get(""))
        return tuple(self.filled(text, **gaps) for text in texts)

    def filled(self, text: str, *parts, **gaps) -> str:
        """A text with its gaps filled in; only those that it has are looked for."""
        e, r = self.e, self.result
        known = {"kernel": r.kernel, "detail": self.detail, "offset": e.offset,
                 "axis": lambda: "xyz"[e.offset], "size": f"grid {r.grid}, block {r.block}",
                 "threads": lambda: math.prod(r.block), "what": self._element, "verb": self._verb,
                 "limit": lambda: f"{r.shared_limit:,} ({r.shared_limit >> 10} KiB)",
                 "extent": self._extent, "position": self._position, **gaps}
        needed = {name: found() if callable(found) else found for name, found in known.items()
                  if "{" + name in text}
        return text.format(*parts, **needed)

    def _where(self, party, place: Place, names_thread: bool = True) -> str:
        who = f"block {triple(party.block, self.result.grid)}"
        if names_thread:
            who += f", thread {triple(party.thread, self.result.block)}"
        of = f" of {place.file}" if self.result.in_included_file(place) else ""
        at = f"line {place.line}{of}, " if place.line else ""
        return f"  {at}{who}{self._text(place)}"

    def _line(self, place: Place) -> str:
        """Where host code is."""
        of = f" of {place.file}" if place.file else ""
        return f"\n  line {place.line}{of}{self._text(place)}" if place.line else ""

    def _text(self, place: Place) -> str:
        text = self.result.text(place)
        return f"\n{place.line:6} | {text}" if text else ""

    def _launched(self, parent) -> str:
        """Of a child: which thread of which kernel launched it."""
        place = Place(parent.file, parent.line)
        of = f" of {place.file}" if self.result.in_included_file(place) else ""
        deep = f", {parent.depth} launches deep" if parent.depth > 1 else ""
        return (f"  {self.result.kernel} was launched by {parent.kernel}, line {place.line}{of}, block "
                f"{triple(parent.block, parent.grid)}, thread "
                f"{triple(parent.thread, parent.size)}{deep}{self._text(place)}")

    def _next_step(self) -> str:
        """After a crash of an unchecked launch, which knows less than a checked one."""
        nowhere = self.kind == "out of bounds" and self.reason == "unchecked"
        names = ["the thread"] * self.block_only + ["the array and the element"] * nowhere
        if not names:
            return ""
        why = ": this one ran as a loop over the threads of a block" * self.block_only
        return f"The same launch in `with cuda.sanitize():` names {', '.join(names)}{why}."

    def _element(self) -> str:
        m, e = self.memory, self.e
        if m is None:
            return "memory"
        if e.owner and m.space == "shared":
            at, (x, y, _) = e.owner - 1, self.result.grid
            return self._part() + f" of block {triple((at % x, at // x % y, at // x // y), self.result.grid)}"
        return self._part()

    def _part(self) -> str:
        m, e = self.memory, self.e
        if not m.itemsize or e.offset % m.itemsize:
            return f"{m.name} at byte {e.offset}"
        first, count = e.offset // m.itemsize, max(e.size // m.itemsize, 1)
        return f"{m.name}[{first}]" if count == 1 else f"{m.name}[{first}..{first + count - 1}]"

    def _position(self) -> str:
        """" (row 3, column 4)" of an element of a tensor with more than one dimension."""
        m, e = self.memory, self.e
        if m is None or len(m.shape) < 2 or not m.itemsize or not 0 <= e.offset < m.bytes:
            return ""
        rest, at = e.offset // m.itemsize, []
        for size in reversed(m.shape):
            at.append(rest % max(size, 1))
            rest //= max(size, 1)
        return f", that is {m.name}[{', '.join(map(str, reversed(at)))}] of the tensor"

    def _extent(self) -> str:
        m = self.memory
        if m.space == "module":
            return f"{m.name} has {m.bytes} bytes"
        count = m.bytes // max(m.itemsize, 1)
        shape = f", shape {tuple(m.shape)}" if len(m.shape) > 1 else ""
        kind = f" {m.dtype}" if m.dtype else ""
        place = "shared array " if m.space == "shared" else ""
        if m.space == "shared" and m.bytes == 0:
            return f"{m.name} has no bytes: the launch asked for no dynamic shared memory"
        if m.bytes % max(m.itemsize, 1):
            return f"{place}{m.name} has {m.bytes} bytes, which are no whole elements of {m.itemsize} bytes"
        return f"{place}{m.name} has {count}{kind} element{'s' * (count != 1)}{shape}"

    def _verb(self) -> str:
        return VERBS[self.e.who.action]


def triple(index, extent) -> str:
    used = 3 if extent[2] > 1 else 2 if extent[1] > 1 else 1
    return str(index[0]) if used == 1 else str(tuple(index[:used]))


def spans(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2, 5"."""
    spans: list[list[int]] = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans)
