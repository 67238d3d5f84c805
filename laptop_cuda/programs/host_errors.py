"""Host code that touches device memory, in words."""
import re

from ..toolchain.lines import NOWHERE, Place

TYPE = re.compile(r"\s*(typedef\s+)?(struct|class|union)\b")
FREES = 4                    # laptop_party.action of engine.h
READS = ("Usual cause: a result that was not copied. cudaMemcpy(..., cudaMemcpyDeviceToHost) copies it into "
         "an array of the host; cudaMallocManaged gives memory for both.")
WRITES = ("Usual cause: an array that is filled in host code. Fill one of the host and copy it with "
          "cudaMemcpy, or fill it in a kernel; cudaMallocManaged gives memory for both.")


def host_place(error, result) -> Place:
    """The innermost call in the source: a library, or a struct's copier, may have touched the memory."""
    offsets = [int(word) for word in error.detail.split()]
    found = result.places(offsets)
    places = [found[o] for o in offsets if found[o].line]
    lines = [p for p in places if not TYPE.match(result.text(p))]
    return next(iter(lines or places), NOWHERE)


def is_for_device(text: str, line: int) -> bool:
    """Whether host code is under a condition on `__CUDA_ARCH__`: nvcc, unlike us, may leave it out."""
    conditions: list[bool] = []
    for row in text.split("\n")[: line - 1]:
        found = re.match(r"\s*#\s*(if|endif)", row)
        if found and found[1] == "if":
            conditions.append("__CUDA_ARCH__" in row)
        elif found and conditions:
            conditions.pop()
    return any(conditions)


def told(teller) -> tuple[str, str] | None:
    """What happened, and its usual cause; None of an error that is not host code's."""
    if teller.kind != "host access":
        return None
    teller.place = host_place(teller.e, teller.result)
    if teller.e.who.action == FREES:
        what = f"calls free() of {teller.memory.name}, which is device memory"
        return _crash_of_card(teller, what), "cudaFree gives back what cudaMalloc gave."
    if teller.reason == "variable":
        return (f"host code {teller._verb()} {teller.memory.name}, a variable of the device: on a card that is another "
                f"variable, which no kernel sees.{teller._line(teller.place)}",
                "cudaMemcpyFromSymbol and cudaMemcpyToSymbol copy it; a __managed__ variable is for both.")
    cause = WRITES if teller.e.who.action else READS
    if teller.reason == "freed":
        cause = "Usual cause: a pointer that is kept after cudaFree; host code may never follow it."
    where = {"freed": f" after cudaFree of {teller.memory.name}", "outside": ", outside of it"}
    what = f"{teller._verb()} {teller._element()}{where.get(teller.reason, '')}: {teller._extent()}"
    return _crash_of_card(teller, f"{what} in device memory"), cause


def _crash_of_card(teller, what: str) -> str:
    return f"host code {what}. On a card the program crashes here.{teller._line(teller.place)}"
