"""A finding of a launch in a page, as the laptop tells it."""
from types import SimpleNamespace

from ..errors.teller import Teller
from ..toolchain.lines import NOWHERE, Place, Texts

SPACES = ("global", "shared", "module")
NOBODY = {"file": 0, "line": 0, "block": (0, 0, 0), "thread": (0, 0, 0), "action": 0}


class _Launched(Texts):
    launched_by = inputs = None

    def __init__(self, launch: dict, files: dict[str, str], memories: list):
        self.kernel, self.shared_limit = launch["kernel"], launch["shared_limit"]
        self.grid, self.block = tuple(launch["grid"]), tuple(launch["block"])
        self.files, self.memories = files, memories

    def places(self, offsets) -> dict:
        names = list(self.files)
        return {at: Place(names[at[0]], at[1]) if at[1] else NOWHERE for at in offsets}


def told(error: dict, launch: dict, files: dict[str, str]) -> tuple[str, str, int]:
    """Kind, message and line. `error` and `launch` as launch.js has them; `files` {name: text}, the source first."""
    who, other = (_party(error.get(name, NOBODY)) for name in ("who", "other"))
    known = "array" in error
    given = next((a for a in launch["args"] if known and a["name"] == error["array"]), {})
    memory = known and SimpleNamespace(name=error["array"], space=SPACES[error["space"]], itemsize=error["itemsize"],
                                       bytes=error["array_bytes"], shape=tuple(given.get("shape", ())),
                                       dtype=given.get("dtype", "") if error["space"] == 0 else "")
    plain = {name: error[name].encode() for name in ("kind", "reason", "detail")}
    plain |= {name: error[name] for name in ("offset", "size", "owner")}
    e = SimpleNamespace(**plain, who=who, other=other, has_thread=error["has"], has_other="other" in error, file=None,
                        line=0, column=0, memory=0 if known else -1)
    teller = Teller(e, _Launched(launch, files, [memory] if known else []))
    return teller.kind, teller.message(), teller.place.line


def _party(party: dict) -> SimpleNamespace:
    return SimpleNamespace(block=party["block"], thread=party["thread"], action=party["action"],
                           pc=(party["file"], party["line"]))
