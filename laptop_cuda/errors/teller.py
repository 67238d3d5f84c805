"""A runtime's error in words. Nothing here knows C: a page has it too."""
from .. import packs
from .launch import LaunchErrors
from .memory import MemoryErrors


class Teller(MemoryErrors, LaunchErrors):
    @property
    def block(self) -> tuple | None:
        return tuple(self.e.who.block) if self.e.has_thread else None

    @property
    def thread(self) -> tuple | None:
        return tuple(self.e.who.thread) if self.e.has_thread and not self.block_only else None

    def message(self) -> str:
        e = self.e
        own = getattr(self, "_" + self.kind.replace(" ", "_"), self.said)
        of_pack = next(filter(None, (p.told(self) for p in packs.named("errors"))), None)
        what, cause = of_pack or own()
        parts = [f"{self.kind}: {what}"]
        if e.has_thread:
            parts.append(self._where(e.who, self.place, not self.block_only))
        elif self.kind == "bad launch" and self.place.line:
            parts.append(self._line(self.place).strip("\n"))
        if e.has_other:
            parts.append(self._where(e.other, self.other_place))
        if self.result.launched_by:
            parts.append(self._launched(self.result.launched_by))
        return "\n".join(parts + [line for line in (cause, self._next_step()) if line])
