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
    memories = []
    if "array" in error:
        space, name = SPACES[error["space"]], error["array"]
        given = next((a for a in launch["args"] if a["name"] == name and space == "global"), {})
        memories = [SimpleNamespace(name=name, space=space, itemsize=error["itemsize"], bytes=error["array_bytes"],
                                    shape=tuple(given.get("shape", ())), dtype=given.get("dtype", ""))]
    parties = {name: SimpleNamespace(**party, pc=(party["file"], party["line"]))
               for name in ("who", "other") for party in [error.get(name, NOBODY)]}
    e = SimpleNamespace(**error | parties | {name: error[name].encode() for name in ("kind", "reason", "detail")},
                        has_thread=error["has"], has_other="other" in error, memory=len(memories) - 1,
                        file=None, line=0, column=0)
    teller = Teller(e, _Launched(launch, files, memories))
    return teller.kind, teller.message(), teller.place.line
