"""A kernel's bug as an exception: what happened, where, to which element, by whom, and the usual cause."""
from .. import packs
from ..arguments.inputs import replay
from ..pictures.player import play
from .launch import LaunchErrors
from .memory import MemoryErrors


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
    return _Teller(error, result).tell()


class _Teller(MemoryErrors, LaunchErrors):
    def tell(self) -> KernelError:
        e = self.e
        own = getattr(self, "_" + self.kind.replace(" ", "_"), self.said)
        of_pack = next(filter(None, (p.told(self) for p in packs.named("errors"))), None)
        what, cause = of_pack or own()
        parts = [f"{self.kind}: {what}"]
        if e.has_thread:
            parts.append(self._where(e.who, self.place, not self.block_only))
        if e.has_other:
            parts.append(self._where(e.other, self.other_place))
        if self.result.launched_by:
            parts.append(self._launched(self.result.launched_by))
        parts += [line for line in (cause, self._next_step()) if line]
        block = tuple(e.who.block) if e.has_thread else None
        thread = tuple(e.who.thread) if e.has_thread and not self.block_only else None
        made = KernelError(self.kind, "\n".join(parts), self.result.kernel, block, thread, self.place.line)
        made._failed = self.result
        return made
