"""A host function called from Python, in a process of its own: what crashes there is a message.

Its arrays go along as managed memory, which both sides may use, and come back if all went well."""
import ctypes
import pickle
import sys
import tempfile
from pathlib import Path

from .. import launch, memory
from ..arguments import ArgumentError, arrays, bind
from ..arguments.pointers import in_values
from ..errors import KernelError
from ..launch.library import Library
from ..machine import REAL
from ..text import signature
from . import Program, execute


def host_function(module, name: str):
    """What `module.host(name)` gives."""
    if name == "main":
        raise ArgumentError("main is a whole program: laptop_cuda.run(path) runs it in its own process")
    hosts = [host for file in module._files for host in signature.hosts(file)]
    found = next((host for host in hosts if name in (host.name, host.function.name)), None)
    if found is None:
        there = ", ".join(host.name for host in hosts)
        raise ArgumentError(f"{module.name} has no host function `{name}`; it has: {there or 'none'}")

    def library() -> Library:
        traced = launch.mode() != "plain"
        return module._build(("host", found, traced), [(found, "")], traced, host_entry)

    def call_it(*arguments, **named) -> None:
        made = library()
        module._continue_in(made)
        texts = {module.name: module.source} | {file.path.name: file.text for file in module._files[1:]}
        call(name, made, texts, arguments, named)
    library()                                # what does not compile is an error here and now
    return call_it


def host_entry(number: int, address: str) -> str:
    """What a library exports of a host function."""
    return f"""
#include <host_launch.h>
LAPTOP_EXPORT void laptop_entry_{number}(void** laptop_args) {{
    laptop::call_host({address}, laptop_args);
}}
LAPTOP_EXPORT void* laptop_managed(size_t bytes, const char* name, unsigned itemsize) {{
    return laptop::device_malloc(bytes, name, itemsize, true);
}}
"""


def call(name: str, library: Library, files: dict[str, str], given: tuple, named: dict) -> None:
    """Calls the one function of a library; its launches are counted or checked if that is asked for."""
    now = launch.current()
    parameters = next(iter(library.entries.values())).parameters
    values = bind(name, parameters, given, named)
    if any(map(arrays.on_gpu, values)):
        raise ArgumentError(f"{name}: host functions take CPU tensors")
    if any(p.category == "p" for p in parameters) or in_values(parameters, values):
        raise ArgumentError(f"{name} runs in a process of its own, where the addresses of arrays here lead "
                            "nowhere: pass each array as an argument")
    if now.machine != REAL:
        raise ArgumentError(f"{name}: the launches of host functions are counted on the usual machine")
    shared = _Shared(parameters, values)
    answer = _answer(name, Program(library.path, now.mode, files), now, shared.asked(library.snapshot()))
    for result in answer["results"] if now.done else ():
        now.done(result)
    if answer["error"]:
        raise answer["error"]
    shared.take(answer["memory"])
    library.restore(answer["globals"])


class _Shared:
    """The arguments' memory: arrays that overlap are parts of one allocation."""

    def __init__(self, parameters: list, values: list):
        self.parameters, self.values = parameters, values
        self.arrays = [arrays.of(v) if p.kind == "pointer" and v is not None else None
                       for p, v in zip(parameters, values)]
        self.allocations = launch.allocations(self.arrays)

    def asked(self, variables: dict[str, bytes]) -> dict:
        """For the child: allocations with their bytes, and where the arguments lie in them."""
        named = {}
        for parameter, array in zip(self.parameters, self.arrays):
            if array is not None:
                named.setdefault(self.place(array)[0], (parameter.name, array.itemsize))
        pieces = [(*named[i], ctypes.string_at(low, high - low))
                  for i, (low, high) in enumerate(self.allocations)]
        arguments = [value if p.kind != "pointer" else array and self.place(array)
                     for p, value, array in zip(self.parameters, self.values, self.arrays)]
        return {"memory": pieces, "arguments": arguments, "globals": variables}

    def place(self, array: arrays.Array) -> tuple[int, int]:
        """(allocation, offset) of an array."""
        number = launch.allocation_of(array, self.allocations)
        return number, array.address - self.allocations[number][0]

    def take(self, pieces: list[bytes]) -> None:
        for (low, _), data in zip(self.allocations, pieces):
            ctypes.memmove(low, data, len(data))
        memory.mark_results(self.parameters, self.values)


def _answer(name: str, program: Program, now: launch.Context, asked: dict) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "asked"), Path(folder, "answer")
        question.write_bytes(pickle.dumps(asked))
        ran = execute(program, order=now.order, seed=now.seed, step_limit=now.step_limit, capture=True,
                      child="programs.host_child", asked=str(question), answer=str(answer))
        sys.stdout.write(ran.stdout)
        if answer.exists():
            sys.stderr.write(ran.stderr)
            return pickle.loads(answer.read_bytes())
    how = ran.crash.replace("the program", "it", 1) or f"it ended its process, exit({ran.status})"
    message = "\n".join(filter(None, [f"crash: {name}: {how}", ran.stderr.strip()]))
    raise KernelError("crash", message, name)
