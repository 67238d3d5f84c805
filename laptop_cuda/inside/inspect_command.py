"""`python -m laptop_cuda inspect`: every kernel of a file, as a compiler for a GPU sees it."""
import argparse
import json
import re
import sys

from .. import gpu
from ..arguments import ArgumentError
from ..module import load
from . import inspect
from .toolkit import NO_COMPILER, InspectError

LAUNCHED = re.compile(r"\b(\w+)\s*<([^<>;{}()]+)>\s*<<<")      # an instance that host code launches


def main(words: list[str]) -> int:
    """The exit status: 0, or 1 if a kernel could not be shown."""
    asked = _parser().parse_args(words)
    if gpu.nvcc() is None:
        raise InspectError(NO_COMPILER)
    module = load(asked.file, asked.include, dict(d.partition("=")[::2] for d in asked.define))
    names = asked.kernel or _kernels(module)
    archs = asked.arch.split(",")
    failed, shown = 0, []
    for name in names:
        try:
            kernel = module[name] if "<" in name else getattr(module, name)
            one = inspect(kernel, archs if len(archs) > 1 else archs[0], block=asked.block,
                          shared_bytes=asked.shared)
        except (InspectError, ArgumentError, AttributeError, KeyError) as problem:
            said = problem.args[0] if isinstance(problem, KeyError) else problem
            print(f"laptop_cuda: {said}", file=sys.stderr)
            failed = 1
            continue
        shown.append(one)
        if not asked.json:
            print(one, end="\n\n")
    left = [k for k in module.kernels if not any(k == name.split("<")[0].strip() for name in names)]
    if left and not asked.kernel:
        print(f"laptop_cuda: templates, shown with --kernel \"{left[0]}<...>\": {', '.join(left)}",
              file=sys.stderr)
    if asked.json:
        print(json.dumps(shown, indent=1))
    return failed


def _kernels(module) -> list[str]:
    """The kernels that are no templates, and the instances that the file's own host code launches."""
    plain = [k.name for k in module._texts if not k.template]
    templates = {k.name for k in module._texts if k.template}
    found = [f"{name}<{arguments.strip()}>" for name, arguments in LAUNCHED.findall(module.source)
             if name in templates]
    return list(dict.fromkeys(plain + found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m laptop_cuda inspect",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("file", help="a .cu file")
    parser.add_argument("--arch", default="sm_90", help="sm_90, or several: sm_80,sm_90,sm_120")
    parser.add_argument("--kernel", action="append", help='only this one: name, or "name<64, 32>"')
    parser.add_argument("--block", type=int, help="threads per block; else __launch_bounds__, else 256")
    parser.add_argument("--shared", type=int, default=0, help="dynamic shared memory, bytes per block")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("-I", dest="include", action="append", default=[], help="a folder for includes")
    parser.add_argument("-D", dest="define", action="append", default=[], help="a macro: N=64")
    return parser
