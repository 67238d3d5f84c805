"""Functions of a source that were built without hooks: what they load and store is neither counted nor
checked. g++ names each function that it gives hooks, in the list beside the build (`by_value`); a function of
the source that the library has and that list has not was kept from them, in whatever way."""
import re
from pathlib import Path

from . import lines
from .by_value import CALLS
from .object_file import ObjectFile

HOOKED = re.compile(r"^;; Function .*?\((\S+), funcdef_no=", re.M)


def unhooked(library: Path, linked: ObjectFile, name: str) -> str | None:
    """The first such function of the source `name`, in words: "the function in line 3". None where the
    compiler writes nothing down."""
    written = library.parent / CALLS
    if not written.exists():
        return None
    hooked = set(HOOKED.findall(written.read_text(errors="replace")))
    # one function may have several names, as constructors have
    addresses = {at for called, at in linked.functions.items() if called in hooked}
    rest = {at + 1: called for called, at in linked.functions.items() if at not in addresses}
    places = lines.of(library, (name,), rest)
    first = min((place.line for place in places.values() if place.line), default=0)
    return f"the function in line {first}" if first else None
