"""Barriers, launches, asserts and the rest in words: one method per kind, as in errors/memory.py."""
import math
import re

from .facts import Facts, spans


class LaunchErrors(Facts):
    def _barrier_divergence(self):
        kernel = self.result.kernel
        if self.reason in ("gone past", "fewer turns"):
            gone = ("has jumped over, and gone on" if self.reason == "gone past" else "does not reach: it "
                    "left the loop around it after fewer turns, and went on")
            return (f"in {kernel}, one thread waits at a __syncthreads() that another thread of its block "
                    f"{gone}.", "Usual cause: __syncthreads() inside an `if` or a loop that not all threads "
                    "of the block run alike; move it out.")
        return (f"in {kernel}, threads of one block wait at two different __syncthreads().",
                "Usual cause: __syncthreads() in both arms of an `if`, or in a loop with a different number "
                "of turns for different threads; every thread must reach the same one.")

    def _deadlock(self):
        kernel = self.result.kernel
        if self.reason == "not in its own mask":
            return (f"in {kernel}, a thread calls a warp function with a mask that leaves the thread itself "
                    "out.", "Usual cause: a mask written for other lanes; the bit of every calling lane "
                    "must be set.")
        if self.reason == "gone past":
            return (f"in {kernel}, a lane waits in a warp function whose mask {self.detail} names a lane "
                    "that has gone past without it.", "Usual cause: a shuffle, vote or __syncwarp inside "
                    "an `if` or a loop that not all lanes of the mask run alike; name only those that do, "
                    "for instance with a __ballot_sync before it.")
        if self.reason == "nobody changes":
            return (f"in {kernel}, every thread that is left waits in a loop for memory that nobody changes, or for "
                    "one that does so.", "Usual cause: a lock that is taken and never given back, a flag that no "
                    "thread sets, a counter that expects more blocks or threads than there are or than a card holds "
                    "at once, or a plain load that should be volatile or atomic.")
        missing = re.search(r"mask (0x\w+), missing lanes (0x\w+)", self.detail)
        what = f"in {kernel}, no thread can go on"
        if missing:
            lanes = [i for i in range(32) if int(missing[2], 16) >> i & 1]
            plural = "s" * (len(lanes) > 1)
            what += f": lanes wait for lane{plural} {spans(lanes)}, named in their mask {missing[1]}"
        return (what + ".", "Usual cause: a shuffle, vote or __syncwarp whose mask names lanes that do not "
                "get there, because it is inside an `if`; a __syncthreads() that part of a warp waits at; "
                "or a cuda::barrier, a tile or a bar.sync that expects more threads than arrive.")

    def _timeout(self):
        if self.reason == "limit":
            return (f"{self.result.kernel} had not ended when the limit of {self.e.offset:,} seconds was reached; no "
                    "bug had been found by then.", "If it only needs longer: a smaller size, or a higher limit, "
                    "`sanitize(limit=600)`, `run --limit 600`. Else look for a loop whose condition never becomes "
                    "false, or one that waits for what nobody does.")
        return (f"{self.result.kernel} was stopped: one block ran more than {self.e.offset:,} steps.",
                "Usual cause: a loop whose condition never becomes false (an unsigned counter that counts "
                "down, a step of 0), or waiting for a block that has not started. If it is only long, a "
                f"higher limit lets it end: `sanitize(step_limit={10 * self.e.offset:_})`, "
                f"`profile(step_limit=...)`, or `run --steps {10 * self.e.offset:_}` for a program.")

    def _bad_launch(self):
        # over the guide: a list of the ways a launch can be wrong, each with its words
        e, r = self.e, self.result
        size = f"grid {r.grid}, block {r.block}"
        axis = "xyz"[e.offset] if 0 <= e.offset < 3 else ""
        what, cause = {
            "empty grid": (f"{r.kernel} was launched with {size}: the grid has no blocks along {axis}.",
                           "Usual cause: n / block, rounded down, where n is smaller than the block; round up: (n + block "
                           "- 1) / block (in Python //)."),
            "empty block": (f"{r.kernel} was launched with {size}: the block has no threads along {axis}.",
                            ""),
            "grid too large": (f"{r.kernel} was launched with {size}: a grid has at most 2147483647 blocks "
                               "along x and 65535 along y and z.", ""),
            "block too large": (f"{r.kernel} was launched with {size}: a block has at most 1024 threads "
                                "along x and y and 64 along z.", ""),
            "too many threads": (f"{r.kernel} was launched with {math.prod(r.block)} threads per block: a "
                                 "block has at most 1024.", "Usual cause: grid and block swapped, or a "
                                 "block for the whole array."),
            "launch bounds": (f"{r.kernel} was launched with {math.prod(r.block)} threads per block, more "
                              "than its __launch_bounds__ allows.", ""),
            "too much shared memory": (f"{r.kernel} needs {e.offset:,} bytes of shared memory per block; "
                                       f"the limit is {r.shared_limit:,} ({r.shared_limit >> 10} KiB).",
                                       "Use a smaller tile, or keep it in half precision; more than 48 KiB of dynamic shared memory "
                                       "must be asked for before the launch: cudaFuncSetAttribute(kernel, "
                                       "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)."),
            "out of memory": (f"{r.kernel} could not be launched: not enough memory for copies of its "
                              "arrays.", ""),
            "grid too large for grid.sync()": (f"{r.kernel} uses grid.sync() with {size}: all its threads "
                                               "must be resident at once, on the model card at most "
                                               "221,184 in 3,456 blocks.", ""),
            "not cooperative": (f"{r.kernel} waits at grid.sync() in a launch that is not cooperative: a card ends it there.",
                                "cudaLaunchCooperativeKernel(kernel, grid, block, arguments) launches it, or cudaLaunchKernelEx "
                                "with cudaLaunchAttributeCooperative; grid.is_valid() says whether one did."),
            "cluster too large": (f"{r.kernel} was launched with clusters of {e.offset} blocks: every card allows 1 to 8.",
                                  "Up to 16, where the card has room for them, where cudaFuncAttributeNonPortableClusterSizeAllowed is set (from Python "
                                  "`kernel.cluster_limit = 16`)."),
            "no whole clusters": (f"{r.kernel} was launched with {size}: along {axis} the grid is no multiple of the "
                                  "cluster's size.", "Usual cause: __cluster_dims__ (or the attribute of the launch) and a "
                                  "number of blocks that was rounded up to whole tiles, but not to whole clusters."),
            "nested too deep": (f"{r.kernel} launches {self.detail} from {e.offset} launches deep: kernels "
                                f"may launch kernels to a depth of {e.offset}.",
                                "Usual cause: a recursion whose end is not reached."),
            "local memory for a child": (f"{r.kernel} gives {self.detail} a pointer to a local variable, "
                                         "which is nothing to another kernel.",
                                         "Pass its value, or put it into device memory."),
            "shared memory for a child": (f"{r.kernel} gives {self.detail} a pointer to its shared memory, "
                                          "which is its block's alone.",
                                          "Pass a value, or put the data into device memory."),
        }[self.reason]
        return what, cause

    def _assertion(self):
        if self.reason == "no return":
            return (f"in {self.result.kernel}, a function came to its end without the value that it returns.",
                    "Usual cause: an `if` that returns, and nothing after it; or a function not written yet.")
        if self.reason == "trap":
            return f"{self.result.kernel} called {self.detail}.", ""
        return f"in {self.result.kernel}, assert({self.detail}) failed.", ""

    def _not_supported(self):
        return (f"{self.result.kernel} reaches `{self.detail}`, which this engine does not know.",
                "The headers of libraries have what they list; device code can do without, in words of CUDA."
                if "::" in self.detail and " " not in self.detail else
                "Inline PTX is translated instruction by instruction; the engine's DETAILS.md lists those "
                "that are known.")

    def _division_by_zero(self):
        if self.reason in ("overflow", "signal"):     # a divisor of zero is seen before the division
            return f"{self.result.kernel} divides the smallest integer by -1.", ""
        return (f"{self.result.kernel} divides an integer by zero.",
                "Usual cause: a size or a stride that was passed as 0.")

    def _stack_overflow(self):
        return (f"{self.result.kernel} used up the stack of a thread.",
                "Usual cause: a recursion without an end, or a local array of many kilobytes.")
