"""A kernel's bug as a Python exception: what happened, where, to which element, by whom, and the usual cause."""
import math
import re

from .facts import Facts, spans

# x[i] += v, ++x[i], *p += v
UPDATE = re.compile(r"\]\s*(\+\+|--|[-+*/|&^]=)|(\+\+|--)\s*\w+\s*\[|\*\s*\w+\s*[-+*/|&^]=")


class KernelError(RuntimeError):
    """A bug that a launch ran into. Nothing the kernel wrote has reached the tensors.

    `.kind` is one of `out of bounds`, `misaligned`, `race`, `uninitialized`, `barrier divergence`, `deadlock`,
    `timeout`, `bad launch`, `assertion`, `division by zero`, `stack overflow`, `not supported`.
    """

    def __init__(self, kind: str, message: str, kernel: str = "", block: tuple | None = None,
                 thread: tuple | None = None, line: int = 0):
        self.kind, self.message, self.kernel = kind, message, kernel
        self.block, self.thread, self.line = block, thread, line
        super().__init__(message)

    def __reduce__(self):
        return type(self), (self.kind, self.message, self.kernel, self.block, self.thread, self.line)

    def _render_traceback_(self) -> list[str]:
        return [f"KernelError: {self.message}"]


def kernel_error(error, result) -> KernelError:
    """From the runtime's structure. `result` is the LaunchResult: names of memories, source, library."""
    return _Teller(error, result).tell()


class _Teller(Facts):
    def tell(self) -> KernelError:
        e = self.e
        what, cause = getattr(self, "_" + self.kind.replace(" ", "_"))()
        parts = [f"{self.kind}: {what}"]
        if e.has_thread:
            parts.append(self._where(e.who, self.place))
        if e.has_other:
            parts.append(self._where(e.other, self.other_place))
        if cause:
            parts.append(cause)
        block, thread = (tuple(e.who.block), tuple(e.who.thread)) if e.has_thread else (None, None)
        return KernelError(self.kind, "\n".join(parts), self.result.kernel, block, thread, self.place.line)

    # ---- one method per kind: (what happened, the usual cause)
    def _out_of_bounds(self):
        kernel, e = self.result.kernel, self.e
        if self.reason == "array":
            side = "before its start" if e.offset < 0 else "past its end"
            cause = ("Usual cause: the last block has threads beyond the end; guard with `if (i < n)`, or check the stride."
                     if e.offset >= 0 else "Usual cause: an index that goes below 0, such as i - 1 at i = 0.")
            if self.memory.space == "shared":
                cause = "Usual cause: the array is smaller than the block or the tile, or an index misses a `% size`."
                if self.memory.bytes == 0:
                    cause = "Usual cause: kernel[grid, block] without the third number, the bytes of shared memory."
            return f"{kernel} {self._verb()} {self._element()}, {side}: {self._extent()}.", cause
        if self.reason == "index":
            cause = "Usual cause: a loop that runs one step too far, or `<=` where `<` is meant."
            if e.offset >= 1 << 31:
                cause = "Usual cause: an unsigned index that went below 0: 0u - 1 is 4294967295."
            kind = re.sub(r".*\(aka '(.*)'\)", r"\1", self.detail).strip("'")     # a typedef, as clang spells it
            return f"{kernel} uses index {e.offset} of {self._local_name()}, whose type is {kind}.", cause
        if self.reason == "constant":
            return (f"{kernel} {self._verb()} {self._element()}, which is constant: kernels only read it.",
                    "Usual cause: __device__ is meant, or the value is to be set from Python, by `module.globals`.")
        if self.reason == "null":
            return (f"{kernel} follows a null pointer.",
                    "Usual cause: None was passed for an array that the kernel uses.")
        if self.reason == "another thread's local memory":
            return (f"{kernel} {self._verb()} the local variable of another thread.",
                    "Usual cause: a pointer to a local variable was put into shared memory; its address means nothing "
                    "to other threads.")
        if self.reason == "freed":
            return (f"{kernel} {self._verb()} {self._element()} after cudaFree of {self.memory.name}.",
                    "Usual cause: a pointer that is kept, or a cudaFree before the last launch that uses it.")
        if self.reason == "host memory":
            return (f"{kernel} {self._verb()} an address that is not in device memory.",
                    "Usual cause: a pointer of the host passed to the kernel: copy the data with cudaMemcpy first. Or a "
                    "pointer that was never set, or an index that is garbage.")
        if self.reason == "beyond shared":
            return (f"{kernel} {self._verb()} shared memory beyond every array declared in it.",
                    "Usual cause: an index computed from the wrong size.")
        if self.reason == "unchecked":
            return (f"{kernel} touches an address that is in no array, or misaligned for a vector access.",
                    "The same launch in `with cuda.sanitize():` names the array and the element.")
        return (f"{kernel} touches an address that belongs to no array of this launch.",
                "Usual cause: a pointer that was never set, or an index that is garbage, such as an unsigned one that "
                "went below 0.")

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
        itemsize = self.memory.itemsize if self.memory else 1
        return (f"{kernel} {self._verb()} {e.size} bytes at {self._element()}, "
                f"whose address is not a multiple of {e.size}.",
                "Usual cause: a cast to a vector type (float4 needs addresses that are multiples of 16) where the row "
                f"length or the start is not a multiple of {max(e.size // max(itemsize, 1), 1)} elements.")

    def _race(self):
        e, kernel = self.e, self.result.kernel
        if self.reason == "copy in flight":
            return (f"{kernel} {self._verb()} {self._element()} while an asynchronous copy into it is not finished.",
                    "Usual cause: no __pipeline_wait_prior (cp.async.wait_group) between the copy and its use.")
        if self.reason == "same value":
            return (f"{kernel}: two threads write the same value to {self._element()}, with no barrier in between. "
                    "The result does not depend on their order.", "")
        pair = {(0, 1): "is read by one thread and written by another",
                (1, 0): "is written by one thread and read by another",
                (1, 1): "is written by two threads"}.get(
                    (e.who.action, e.other.action), "is updated atomically by one thread and touched plainly by another")
        one_warp = math.prod(self.result.block) <= 32
        apart = ("in two blocks, which nothing orders" if self.reason == "between blocks" else
                 f"with no {'__syncwarp' if one_warp else '__syncthreads'}() in between")
        return (f"in {kernel}, {self._element()} {pair}, {apart}{self._position()}.",
                "Usual cause: " + self._cause_of_race(one_warp))

    def _cause_of_race(self, one_warp: bool) -> str:
        e = self.e
        if self.place == self.other_place and UPDATE.search(self.result.text(self.place)):
            return ("several threads update one element, and `x[i] += v` is a read and a write. Use atomicAdd, or give "
                    "each element to one thread.")
        if self.reason == "between blocks":
            return ("two blocks compute the same output element, or one relies on another's result; use atomicAdd, or a "
                    "second launch.")
        if (e.who.action, e.other.action) == (1, 1) and self.memory is not None and self.memory.space == "global":
            return "an index that gives two threads the same output element."
        if one_warp:
            return ("code that trusts a warp to run in step. Since Volta it does not: put __syncwarp() between the write "
                    "and the read (a shuffle orders no memory).")
        cause = "a missing __syncthreads() between filling shared memory and using it, or before it is filled again."
        if self.reason == "inside a warp":
            cause += " These two threads are of one warp, which since Volta does not run in step either."
        return cause

    def _uninitialized(self):
        kernel = self.result.kernel
        if self.reason.endswith("shuffle"):
            why = "is not in its mask" if self.e.size else "has ended or does not exist"
            depends = {"shuffle": "and the result depends on it", "some shuffle": "whether or not it is used",
                       "unused shuffle": "but the result does not depend on it"}[self.reason]
            return (f"in {kernel}, a shuffle takes a value from lane {self.e.offset}, which {why}. That value is "
                    f"undefined, {depends}.",
                    "Usual cause: an offset that starts at half of 32 where fewer lanes take part, or a block whose size "
                    "is not a multiple of 32; start at half of the lanes, or let all 32 take part.")
        if self.reason == "shared":
            return (f"{kernel} {self._verb()} shared {self._element()}, which no thread has written.",
                    "Usual cause: the loop that fills the tile does not cover it (padding, a ragged edge, fewer threads "
                    "than elements); write a 0 where there is no data.")
        return (f"{kernel} {self._verb()} {self._element()}, which was never written{self._position()}.",
                "Usual cause: the array came from cuda.empty() and is added to before it is set; start from zeros, or "
                "store instead of adding.")

    def _barrier_divergence(self):
        kernel = self.result.kernel
        if self.reason == "gone past":
            return (f"in {kernel}, one thread waits at a __syncthreads() that another thread of its block has gone past "
                    "without it.",
                    "Usual cause: __syncthreads() inside an `if` or a loop that not all threads of the block run alike; "
                    "move it out.")
        return (f"in {kernel}, threads of one block wait at two different __syncthreads().",
                "Usual cause: __syncthreads() in both arms of an `if`, or in a loop with a different number of turns "
                "for different threads; every thread must reach the same one.")

    def _deadlock(self):
        kernel = self.result.kernel
        if self.reason == "not in its own mask":
            return (f"in {kernel}, a thread calls a warp function with a mask that leaves the thread itself out.",
                    "Usual cause: a mask written for other lanes; the bit of every calling lane must be set.")
        if self.reason == "gone past":
            return (f"in {kernel}, a lane waits in a warp function whose mask {self.detail} names a lane that has gone "
                    "past without it.",
                    "Usual cause: a shuffle, vote or __syncwarp inside an `if` or a loop that not all lanes of the mask "
                    "run alike; name only those that do, for instance with a __ballot_sync before it.")
        missing = re.search(r"mask (0x\w+), missing lanes (0x\w+)", self.detail)
        what = f"in {kernel}, no thread can go on"
        if missing:
            lanes = [i for i in range(32) if int(missing[2], 16) >> i & 1]
            what += f": lanes wait for lane{'s' * (len(lanes) > 1)} {spans(lanes)}, named in their mask {missing[1]}"
        return (what + ".",
                "Usual cause: a shuffle, vote or __syncwarp whose mask names lanes that do not get there, because it "
                "stands inside an `if`; or a __syncthreads() that part of a warp waits at.")

    def _timeout(self):
        return (f"{self.result.kernel} was stopped: one block ran more than {self.e.offset:,} steps.",
                "Usual cause: a loop whose condition never becomes false (an unsigned counter that counts down, a step "
                "of 0), or waiting for a block that has not started. `step_limit=` raises the limit.")

    def _bad_launch(self):
        e, r = self.e, self.result
        size = f"grid {r.grid}, block {r.block}"
        axis = "xyz"[e.offset] if 0 <= e.offset < 3 else ""
        what, cause = {
            "empty grid": (f"{r.kernel} was launched with {size}: the grid has no blocks along {axis}.",
                           "Usual cause: n // block where n is smaller than the block; round up: (n + block - 1) // block."),
            "empty block": (f"{r.kernel} was launched with {size}: the block has no threads along {axis}.", ""),
            "grid too large": (f"{r.kernel} was launched with {size}: a grid has at most 2147483647 blocks along x and "
                               "65535 along y and z.", ""),
            "block too large": (f"{r.kernel} was launched with {size}: a block has at most 1024 threads along x and y "
                                "and 64 along z.", ""),
            "too many threads": (f"{r.kernel} was launched with {math.prod(r.block)} threads a block: a block has at most "
                                 "1024.", "Usual cause: grid and block swapped, or a block for the whole array."),
            "launch bounds": (f"{r.kernel} was launched with {math.prod(r.block)} threads a block, more than its "
                              "__launch_bounds__ allows.", ""),
            "too much shared memory": (f"{r.kernel} needs {e.offset:,} bytes of shared memory a block: there are "
                                       f"{r.shared_limit:,} ({r.shared_limit >> 10} KiB).",
                                       "Use a smaller tile, or keep it in half precision."),
            "out of memory": (f"{r.kernel} could not be launched: not enough memory for copies of its arrays.", ""),
            "grid too large for grid.sync()": (f"{r.kernel} uses grid.sync() with {size}: all its threads must be "
                                               "resident at once, here at most 16384.", ""),
            "from a kernel": (f"{r.kernel} launches a kernel from a kernel, which is not supported.", ""),
        }[self.reason]
        return what, cause

    def _assertion(self):
        if self.reason == "trap":
            return f"{self.result.kernel} called {self.detail}.", ""
        return f"in {self.result.kernel}, assert({self.detail}) failed.", ""

    def _not_supported(self):
        return (f"{self.result.kernel} reaches `{self.detail}`, which this engine does not know.",
                "Inline PTX is translated instruction by instruction; the engine's README lists those that are known.")

    def _division_by_zero(self):
        if self.reason in ("overflow", "signal"):     # a divisor of zero is seen before the division
            return f"{self.result.kernel} divides the smallest integer by -1.", ""
        return (f"{self.result.kernel} divides an integer by zero.",
                "Usual cause: a size or a stride that was passed as 0.")

    def _stack_overflow(self):
        return (f"{self.result.kernel} used up the stack of a thread.",
                "Usual cause: a recursion without an end, or a local array of many kilobytes.")
