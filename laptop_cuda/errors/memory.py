"""Wrong accesses to memory in words: one method per kind, which gives (what happened, the usual cause)."""
import ctypes
import math
import re

from .facts import Facts

# x[i] += v, ++x[i], *p += v
UPDATE = re.compile(r"\]\s*(\+\+|--|[-+*/|&^]=)|(\+\+|--)\s*\w+\s*\[|\*\s*\w+\s*[-+*/|&^]=")

# x[i] += x[i + k]: one thread's update reads another's element
FROM_ANOTHER = re.compile(r"\b(\w+)\s*\[[^\]]*\]\s*[-+*/|&^]=.*\b\1\s*\[")

ADDRESSES = (" Or the address of an array given as a number: a checked launch works on copies, and follows "
             "the addresses that `laptop_cuda.pointers(a, b, ...)` makes, in an array (`int64_t*`, "
             "`float**`).")


FENCED = (" Where a flag is to order them: a __threadfence() before it is raised, and one after it is seen; "
          "__threadfence_block() and atomics of the block's scope order nothing between blocks.")


class MemoryErrors(Facts):
    def _out_of_bounds(self):
        # over the guide: a list of the ways to be out of bounds, each with its words
        kernel, e = self.result.kernel, self.e
        if self.reason == "array":
            side = "before its start" if e.offset < 0 else "past its end"
            cause = (
                "Usual cause: the last block has threads beyond the end; guard with `if (i < n)`, or check "
                "the stride."
                if e.offset >= 0
                else "Usual cause: an index that goes below 0, such as i - 1 at i = 0.")
            if self.memory.space == "shared":
                cause = ("Usual cause: the array is smaller than the block or the tile, or an index misses a "
                         "`% size`.")
                if self.memory.bytes == 0:
                    cause = ("Usual cause: the third number of the launch, the bytes of dynamic shared memory, is missing: "
                             "kernel<<<grid, block, bytes>>>, from Python kernel[grid, block, bytes].")
            return f"{kernel} {self._verb()} {self._element()}, {side}: {self._extent()}.", cause
        if self.reason == "index":
            cause = ("Usual cause: a loop that runs one step too far, `<=` where `<` is meant, or more "
                     "threads than elements.")
            if e.offset >= 1 << 31:
                cause = "Usual cause: an unsigned index that went below 0: 0u - 1 is 4294967295."
            # a typedef, as clang spells it
            kind = re.sub(r".*\(aka '(.*)'\)", r"\1", self.detail).strip("'")
            return f"{kernel} uses index {e.offset} of {self._local_name()}, whose type is {kind}.", cause
        if self.reason == "constant":
            return (f"{kernel} {self._verb()} {self._element()}, which is constant: kernels only read it.",
                    "Usual cause: __device__ is meant, or the value is to be set from Python, by "
                    "`module.globals`.")
        if self.reason == "null":
            return (f"{kernel} follows a null pointer.",
                    "Usual cause: None was passed for an array that the kernel uses.")
        if self.reason == "gone":
            return (f"{kernel} {self._verb()} a local variable of a function that has returned.",
                    "Usual cause: a function returns the address of an array of its own: let the caller pass one.")
        if self.reason == "another thread's local memory":
            return (f"{kernel} {self._verb()} the local variable of another thread.",
                    "Usual cause: a pointer to a local variable was put into shared memory; its address "
                    "means nothing to other threads.")
        if self.reason == "return address":
            return (f"{kernel} writes over the address to which one of its functions returns.",
                    "Usual cause: a pointer to a local array, with an index past the array's end.")
        if self.reason == "freed":
            return (f"{kernel} {self._verb()} {self._element()}, which was freed.",
                    "Usual cause: a pointer that is kept, or memory that is freed before the last launch that uses it.")
        if self.reason == "host memory":
            return (f"{kernel} {self._verb()} an address that is not in device memory.",
                    "Usual cause: a pointer of the host passed to the kernel: copy the data with cudaMemcpy "
                    "first. Or a pointer that was never set, or an index that is garbage.")
        if self.reason == "beyond shared":
            return (f"{kernel} {self._verb()} shared memory beyond every array declared in it.",
                    "Usual cause: an index computed from the wrong size.")
        if self.reason == "unchecked":
            return f"{kernel} touches an address that is in no array, or misaligned for a vector access.", ""
        return (f"{kernel} touches an address that belongs to no array of this launch.",
                "Usual cause: a pointer that was never set, or an index that is garbage, such as an "
                "unsigned one that went below 0." + ADDRESSES * self._takes_addresses())

    def _takes_addresses(self) -> bool:
        """Whether the launch was given 64-bit integers, in an array or as a value of an address' size."""
        cells = self.result.inputs.cells if self.result.inputs else []
        values = [int.from_bytes(c, "little") for c in cells
                  if isinstance(c, ctypes.Array) and len(bytes(c)) == 8]
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
        e, kernel = self.e, self.result.kernel
        whole, rest = divmod(e.size, self.memory.itemsize if self.memory and self.memory.itemsize else 1)
        of = f"{e.size} bytes" if rest or whole < 2 else f"{whole} elements"
        return (f"{kernel} {self._verb()} {e.size} bytes at {self._element()}, whose address is not a "
                f"multiple of {e.size}.", "Usual cause: a cast to a vector type (float4 needs addresses "
                "that are multiples of 16) where the row length or the start is not a multiple of "
                f"{of}.")

    def _overlap(self):
        return (f"in {self.result.kernel}, {self.detail} are one memory, as all extern __shared__ arrays of a "
                "kernel are.", "For two arrays, add to the first one's address what it takes.")

    def _race(self):
        e, kernel = self.e, self.result.kernel
        if self.reason == "copy in flight":
            return (f"{kernel} {self._verb()} {self._element()} while an asynchronous copy into it is not "
                    "finished.", "Usual cause: nothing waits for the copy before its use: __pipeline_wait_prior, "
                    "cp.async.wait_group, the phase of its mbarrier, a pipeline's consumer_wait, or wait() of "
                    "cooperative groups.")
        if self.reason == "same value":
            return (f"{kernel}: two threads write the same value to {self._element()}, with no barrier in "
                    "between. The result does not depend on their order.", "")
        if self.reason == "scope":
            return (f"in {kernel}, two blocks update {self._element()} atomically, and one of them by an "
                    "operation of its block's scope, which is atomic among the threads of that block only.",
                    "Usual cause: atomicAdd_block() (in PTX .cta) on what blocks share; use atomicAdd().")
        if self.reason == "not constant":
            return (f"{kernel} reads {self._element()} by __ldg (ld.global.nc), and this launch has written it: "
                    "what comes back may be the value from before.",
                    "Usual cause: __ldg on an array that the kernel changes too; read it plainly.")
        pair = {(0, 1): "is read by one thread and written by another",
                (1, 0): "is written by one thread and read by another",
                (1, 1): "is written by two threads"}.get((e.who.action, e.other.action),
                                                         "is updated atomically by one thread and touched "
                                                         "plainly by another")
        one_warp = math.prod(self.result.block) <= 32
        apart = ("in two blocks, which nothing orders" if self.reason == "between blocks" else
                 f"with no {'__syncwarp' if one_warp else '__syncthreads'}() in between")
        return (f"in {kernel}, {self._element()} {pair}, {apart}{self._position()}.",
                "Usual cause: " + self._cause_of_race(one_warp))

    def _cause_of_race(self, one_warp: bool) -> str:
        e = self.e
        text = self.result.text(self.place)
        if self.place == self.other_place and UPDATE.search(text) and not FROM_ANOTHER.search(text):
            return ("several threads update one element, and `x[i] += v` is a read and a write. Use "
                    "atomicAdd, or give each element to one thread.")
        both_write = (e.who.action, e.other.action) == (1, 1)
        if self.reason == "between blocks":
            return ("an index that leaves out which block this is. Where both are meant to add to one element: "
                    "atomicAdd." if both_write else "a block that relies on another's result. Use a second launch."
                    + FENCED)
        on_global = self.memory is not None and self.memory.space == "global"
        if both_write and on_global:
            return "an index that gives two threads the same output element."
        if one_warp:
            return ("code that trusts a warp to run in step. Since Volta it does not: put __syncwarp() "
                    "between the write and the read (a shuffle orders no memory).")
        cause = ("a kernel that works in place: write to another array, or put a __syncthreads() or a second "
                 "launch between the reads and the writes." if on_global else
                 "a missing __syncthreads() between filling shared memory and using it, or before it is "
                 "filled again.")
        if self.reason == "inside a warp":
            cause += (" These two threads are of one warp. Since Volta (2017) the threads of a warp need not "
                      "run in step, so they need a barrier too.")
        return cause

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
        if self.reason in ("suspect", "local"):
            what = (f"`{self.detail}`, declared in line {self.e.offset}, before it has a value" if self.detail else
                    "a local variable, or an element of a local array, before it has a value")
            return (f"{kernel} reads {what}.", "Usual cause: a sum that does not start at 0, or something set on some "
                    "paths only: give it a value where it is declared.")
        if self.reason == "shared":
            return (f"{kernel} {self._verb()} shared {self._element()}, which no thread has written.",
                    "Usual cause: the loop that fills the tile does not cover it (padding, a ragged edge, "
                    "fewer threads than elements); write a 0 where there is no data.")
        return (f"{kernel} {self._verb()} {self._element()}, which was never written{self._position()}.",
                "Usual cause: memory of cudaMalloc (in Python cuda.empty()) that is added to before it is set; start "
                "from zeros (cudaMemset), or store instead of adding. Or a copy of an array of the host that was "
                "never filled.")
