"""A kernel as a reader of a page has edited it: the engine's text passes, in Python that runs in the page.

Nothing here, and nothing that it imports, knows ctypes, torch or a compiler of this machine."""
import json
import tempfile
from pathlib import Path

from ..sources import files_of, split_instance, written
from ..text.diagnostics import REFUSED, CompileError, read_errors
from ..text.shared_types import all_declared
from ..text.signature import KernelText, kernels
from ..toolchain.cache import cache

# The text passes as a page has them, with an empty package in place of laptop_cuda/__init__.
ROOMS = ("text/*.py", "rewrite/*.py", "ptx/*.py", "toolchain/__init__.py", "toolchain/cache.py", "toolchain/compilers.py",
         "toolchain/precompiled.py", "toolchain/lines.py", "toolchain/line_table.py", "toolchain/object_file.py",
         "errors/[!_]*.*", "sources.py", "packs.py", "pack.toml", "kernel_text.py", "page/edited.py", "page/finding.py", "page/hooked.py",
         "asynchronous/pack.toml", "asynchronous/instructions.py", "asynchronous/errors.*")


def prepared(asked: str) -> str:
    """The C++ of an edited source, and the number of the kernel's entry; or what is wrong with it. JSON both ways:
    {text, name, kernel, define, lines: of the chapter's text and of the files beside it, places: where those are}."""
    job = json.loads(asked)
    name, (kernel, instance) = job["name"], split_instance(job["kernel"])
    folder = Path(tempfile.mkdtemp())
    given, *beside = ("\n".join(lines) for lines in job["lines"])
    for path, text in zip(job["places"], beside):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    try:
        files = files_of(job["text"], folder)
        files[0].defines = tuple(job["define"])
        known = [k for file in files_of(given, folder) for k in kernels(file)]
        found = [k for file in files for k in kernels(file)]
        named = lambda some: next((k for k in some if kernel in (k.name, k.function.name)), None)
        mine, before = named(found), named(known)
        if told := _no_launch(mine, before, kernel):
            return json.dumps({"error": told, "kind": "launch" if mine else "not defined"})
        wanted = [(mine, instance)] if mine.template else [(k, "") for k in found if not k.template]
        text = written(files, name, wanted, folder)
    except CompileError as error:
        return json.dumps({"error": str(error), "kind": "compile"})
    copies = {str(p): p.read_text(encoding="utf-8") for p in cache().glob("header-*/*")} if files[1:] else {}
    return json.dumps({"text": text, "entry": [k for k, _ in wanted].index(mine), "copies": copies,
                       "types": all_declared([file.as_read for file in files]), "parameters": mine.parameters})


def _no_launch(mine: KernelText | None, before: KernelText, name: str) -> str:
    """Why the launch of the page does not fit the kernel; "" if it does."""
    if mine is None:
        return f"this launch needs a kernel {name}, and the text has none"
    bare = lambda kernel: ["".join(type.replace("__restrict__", "").split()) for type in kernel.types]
    if bare(mine) != bare(before):
        return (f"this launch gives {name} ({', '.join(before.types)}); the kernel takes ({', '.join(mine.types)}). "
                "What it computes may change, its parameters may not")
    return ""


def refusal(failed: bool, printed: str, source: str, name: str, files: str) -> str:
    """What the compiler has against it, as the notebook says it; "" if nothing."""
    if not failed and not REFUSED.search(printed):
        return ""
    errors = read_errors(REFUSED.sub(r"error: \1", printed), name, tuple(json.loads(files)[1:]))
    return str(CompileError(name, source, errors, printed))
