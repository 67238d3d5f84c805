"""Structs that a call copies straight from an array, or whose result goes straight into one, unseen by g++.

g++ puts hooks before statements that load and store, and none before a call that itself copies a struct. Its
flag -fno-elide-constructors makes functions of nearly all such copies, which have hooks; what is left (a
struct for `...`, a result that is built in place, the copies of the C++ library) would not be counted. g++
writes its calls down beside each traced build, and here they are looked at: what the build does decides,
whatever the types are called."""
import re
from pathlib import Path

from ..text.tokens import split_text
from .object_file import ObjectFile

CALLS = "kernel.calls"
FLAG = f"-fdump-tree-tsan0-raw-uid-lineno={CALLS}"
HEADERS = str(Path(__file__).resolve().parents[1])       # the core's and the packs'
FUNCTION = re.compile(r"^;; Function .*\bdecl_uid=(\d+)", re.M)
CALL = re.compile(r"\s*(?:\[(?P<file>.*?):(?P<line>\d+):\d+\] )?gimple_call <(?P<operands>.*)>")
# what a compiler may put in line without a hook; calls of other functions are seen in the object
MOVES = re.compile(r"(?:__builtin_)?(?:mem|str|b(?:cmp|copy|zero)$|r?index$)")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
PLACE = re.compile(r"\[[^][]*:\d+:\d+\] ")
DECLARED = re.compile(r"D\.\d+")
# a variable with its number, and a member or an element of it
VARIABLE = re.compile(r"(?P<name>[\w.$]*?)(?P<number>D\.\d+)(?:\.[\w.$]+|\[[^*>()]*\])*")


def uncounted_copy(folder: Path, made: ObjectFile) -> str | None:
    """The first function that takes or gives a struct where no hook sees it, in words: "`name` in line 3".

    `made` is the object of that build. None where the compiler writes nothing down."""
    written = folder / CALLS
    text = written.read_text(errors="replace") if written.exists() else ""
    functions = {f"D.{number}" for number in FUNCTION.findall(text)}
    own: set[str] = set()
    before = ""
    for line in text.splitlines():
        if line == "{":
            own = set(DECLARED.findall(before))                        # the parameters
        elif line.startswith("  ") and (call := CALL.match(line)):
            if not (call["file"] or "").startswith(HEADERS) and _unseen(call, own | functions, made):
                return _told(call)
        elif line.startswith("  ") and not line.startswith("  static ") and line.endswith(";"):
            own |= set(DECLARED.findall(re.split(r" = | \[value-expr", line)[0]))
        before = line
    return None


def _unseen(call: re.Match, own: set[str], made: ObjectFile) -> bool:
    name, *operands = _operands(call["operands"])
    number = DECLARED.search(name)
    moves = MOVES.match(name) and number and number[0] not in own
    return bool(moves) or any(_elsewhere(operand, own, made) for operand in operands)


def _told(call: re.Match) -> str:
    name = DECLARED.sub("", _operands(call["operands"])[0])
    return f"`{name}`" + f" in line {call['line']}" * bool(call["line"])


def _operands(text: str) -> list[str]:
    """The parts between the commas that are in no bracket: what is called, its result, its arguments."""
    return split_text(PLACE.sub("", QUOTED.sub('""', text)))


def _elsewhere(operand: str, own: set[str], made: ObjectFile) -> bool:
    """Whether an operand is memory: no variable of the function's own, number, address or register."""
    if operand.startswith(("&", '"')) or operand.lstrip("*").startswith("<retval>"):
        return False
    if variable := VARIABLE.fullmatch(operand):
        return variable["number"] not in own and not _is_function(variable["name"], made)
    return any(sign in operand for sign in ("*", "->", "MEM", "D."))


def _is_function(name: str, made: ObjectFile) -> bool:
    """Whether the object has or needs a function of this name, as the engine's headers have, and no variable
    of the same name in any namespace or function."""
    def among(symbols) -> bool:
        return any(symbol == name or f"{len(name)}{name}" in symbol for symbol in symbols)
    return bool(name) and among((*made.gives, *made.needs)) and not among(made.variables)
