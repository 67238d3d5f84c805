"""Wrong accesses to memory in words: one method per kind, which gives (what happened, the usual cause)."""
import math
import re

from .facts import WORDS, Facts

# x[i] += v, ++x[i], *p += v
UPDATE = re.compile(r"\]\s*(\+\+|--|[-+*/|&^]=)|(\+\+|--)\s*\w+\s*\[|\*\s*\w+\s*[-+*/|&^]=")

# x[i] += x[i + k]: one thread's update reads another's element
FROM_ANOTHER = re.compile(r"\b(\w+)\s*\[[^\]]*\]\s*[-+*/|&^]=.*\b\1\s*\[")

ADDRESSES = (" Or the address of an array given as a number: a checked launch works on copies, and follows "
             "the addresses that `laptop_cuda.pointers(a, b, ...)` makes, in an array (`int64_t*`, "
             "`float**`).")


class MemoryErrors(Facts):
    def _out_of_bounds(self):
        e, reason = self.e, self.reason
        if reason == "array":
            if self.memory.space == "shared":
                reason = "shared array" if self.memory.bytes else "no shared array"
            elif e.offset < 0:
                reason = "before array"
        elif reason == "index" and e.offset >= 1 << 31:
            reason = "wrapped index"
        return self.said(reason, side="before its start" if e.offset < 0 else "past its end",
                         local=self._local, addresses=lambda: ADDRESSES * self._takes_addresses())

    def _local(self) -> str:
        kind = re.sub(r".*\(aka '(.*)'\)", r"\1", self.detail).strip("'")     # a typedef, as clang spells it
        return f"{self._local_name()}, whose type is {kind}"

    def _takes_addresses(self) -> bool:
        """Whether the launch was given 64-bit integers, in an array or as a value of an address' size."""
        cells = self.result.inputs.cells if self.result.inputs else []
        values = [int.from_bytes(c, "little") for c in cells if hasattr(c, "raw") and len(c) == 8]    # bytes, no pointer
        return (any(m.dtype in ("int64", "uint64") for m in self.result.memories)
                or any(1 << 32 <= v < 1 << 48 for v in values))

    def _local_name(self) -> str:
        """The array indexed at the error's column, as the source spells it."""
        line = self.result.text(self.place)
        column = self.e.column - 1
        for match in re.finditer(r"(\w+)\s*((?:\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]\s*)+)", line):
            if match.start() <= column <= match.end():
                return match.group(1)
        found = re.search(r"(\w+)\s*\[", line)
        return found.group(1) if found else "an array"

    def _misaligned(self):
        size = self.e.size
        whole, rest = divmod(size, self.memory.itemsize if self.memory and self.memory.itemsize else 1)
        return self.said(bytes=size, step=f"{size} bytes" if rest or whole < 2 else f"{whole} elements")

    def _race(self):
        actions = self.e.who.action, self.e.other.action
        pair = {(0, 1): "is read by one thread and written by another",
                (1, 0): "is written by one thread and read by another",
                (1, 1): "is written by two threads"}.get(
            actions, "is updated atomically by one thread and touched plainly by another")
        one_warp = math.prod(self.result.block) <= 32
        apart = ("in two blocks, which nothing orders" if self.reason == "between blocks" else
                 f"with no {'__syncwarp' if one_warp else '__syncthreads'}() in between")
        return self.said(pair=pair, apart=apart, cause=self._cause_of_race(actions == (1, 1), one_warp))

    def _cause_of_race(self, both_write: bool, one_warp: bool) -> str:
        causes, text = WORDS["causes of a race"], self.result.text(self.place)
        on_global = self.memory is not None and self.memory.space == "global"
        if self.place == self.other_place and UPDATE.search(text) and not FROM_ANOTHER.search(text):
            return causes["update"]
        if self.reason == "between blocks":
            return causes["blocks write" if both_write else "between blocks"]
        if both_write and on_global:
            return causes["same output"]
        if one_warp:
            return causes["one warp"]
        inside = " " + causes["inside a warp"] if self.reason == "inside a warp" else ""
        return causes["in place" if on_global else "shared"] + inside

    def _uninitialized(self):
        kernel = self.result.kernel
        if self.reason.endswith("shuffle"):
            why = "is not in its mask" if self.e.size else "has ended or does not exist"
            depends = {"shuffle": "and the result depends on it", "some shuffle": "whether or not it is used",
                       "unused shuffle": "but the result does not depend on it"}[self.reason]
            return (f"in {kernel}, a shuffle takes a value from lane {self.e.offset}, which {why}. That "
                    f"value is undefined, {depends}.", "Usual cause: an offset that starts at half of 32 "
                    "where fewer lanes take part, or a block whose size is not a multiple of 32; start at "
                    "half of the lanes, or let all 32 take part.")
        if self.reason in ("suspect", "local", "member"):
            what = (f"`{self.detail}`, declared in line {self.e.offset}, before it has a value" if self.detail else
                    "a local variable, or an element of a local array, before it has a value" if self.memory is None
                    else f"{self._element()}, a member that had no value in the struct that was stored there")
            return (f"{kernel} reads {what}.", "Usual cause: a sum that does not start at 0, or something set on some "
                    "paths only: give it a value where it is declared.")
        if self.reason == "either":
            return (f"{kernel} {self._verb()} {self._element()}, where lanes of one warp have stored different values by one "
                    "instruction: which of them is last, CUDA leaves open.", "Usual cause: a store that one lane is to do.")
        if self.reason == "shared":
            return (f"{kernel} {self._verb()} shared {self._element()}, which no thread has written.",
                    "Usual cause: the loop that fills the tile does not cover it (padding, a ragged edge, "
                    "fewer threads than elements); write a 0 where there is no data.")
        return (f"{kernel} {self._verb()} {self._element()}, which was never written{self._position()}.",
                "Usual cause: memory of cudaMalloc (in Python cuda.empty()) that is added to before it is set; start "
                "from zeros (cudaMemset), or store instead of adding. Or a copy of an array of the host that was "
                "never filled.")
