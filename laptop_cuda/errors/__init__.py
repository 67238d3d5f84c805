"""A kernel's bug as an exception: what happened, where, to which element, by whom, and the usual cause."""
from .. import packs
from ..arguments.inputs import replay
from ..pictures.player import play
from .teller import Teller


class KernelError(RuntimeError):
    """A bug that a launch ran into. Nothing the kernel wrote has reached the tensors.

    `.kind` is one of `out of bounds`, `misaligned`, `race`, `uninitialized`, `barrier divergence`,
    `deadlock`, `misused barrier`, `bad descriptor`, `timeout`, `bad launch`, `assertion`, `division by zero`,
    `stack overflow`, `not supported`; of host code also `host access`, `misuse` (of the API) and `crash`."""

    def __init__(self, kind: str, message: str, kernel: str = "", block: tuple | None = None,
                 thread: tuple | None = None, line: int = 0):
        self.kind, self.message, self.kernel = kind, message, kernel
        self.block, self.thread, self.line = block, thread, line
        super().__init__(message)
        self._failed = None              # the launch, as `replay` needs it

    def __reduce__(self):
        return type(self), (self.kind, self.message, self.kernel, self.block, self.thread, self.line)

    def replay(self, *, blocks=None, events: int | None = None):
        """What the threads did up to the error, which is marked; see `laptop_cuda.replay`."""
        return replay(self._failed, self, blocks, events)

    def play(self, *, blocks=None, events: int | None = None) -> None:
        """The replay as a picture, opened where the message points; see `laptop_cuda.pictures.player`."""
        play(self.replay(blocks=blocks, events=events))

    def timeline(self, block=0, order: str = ""):
        """Who waited for whom up to the error; see `laptop_cuda.asynchronous.timeline`."""
        return packs.part("asynchronous.timeline").timeline(self._failed, self, block, order)

    def _render_traceback_(self) -> list[str]:
        return [f"KernelError: {self.message}"]


def plain_error(error: KernelError) -> dict:
    """For JSON."""
    return {name: getattr(error, name) for name in ("kind", "kernel", "line", "block", "thread", "message")}


def kernel_error(error, result) -> KernelError:
    """From the runtime's structure. `result` is the LaunchResult: names of memories, source, library."""
    told = Teller(error, result)
    made = KernelError(told.kind, told.message(), result.kernel, told.block, told.thread, told.place.line)
    made._failed = result
    return made
