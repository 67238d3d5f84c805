"""Code of a source that was built without hooks: what it loads and stores is neither counted nor checked.

g++ names each function that it gives hooks, in the list beside the build (`by_value`). A function that the
library has and that list has not is the engine's own. If a line of the source is in it, then either the source
has kept a function of its own from hooks, in whatever way, or code of the source was put in line there."""
import bisect
import re
from pathlib import Path

from .by_value import CALLS
from .line_table import rows_of
from .object_file import ObjectFile

HOOKED = re.compile(r"^;; Function .*?\((\S+), funcdef_no=", re.M)


def unhooked(library: Path, linked: ObjectFile, name: str) -> int | None:
    """The first line of the source `name` in such a function. None where the compiler writes nothing down."""
    written = library.parent / CALLS
    if not written.exists():
        return None
    hooked = set(HOOKED.findall(written.read_text(errors="replace")))
    # one function may have several names, as constructors have
    seen = {place.start for called, place in linked.functions.items() if called in hooked}
    rest = sorted((place.start, place.stop) for place in linked.functions.values() if place.start not in seen)
    own = {row.address: row.line for row in rows_of(library) if row.file == name and row.line > 0}
    found = [line for address, line in own.items() if _within(rest, address)]
    return min(found, default=None)


def _within(places: list[tuple[int, int]], address: int) -> bool:
    at = bisect.bisect_right(places, (address, 1 << 64)) - 1
    return at >= 0 and address < places[at][1]
