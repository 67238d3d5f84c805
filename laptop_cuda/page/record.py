"""What a page needs of each launch that a program makes here: description, bytes, the laptop's answer.

    record.start(folder)         # from here on: the first launch of each kernel in each cell of a notebook
    folder/launches.json         # "launches", "sources", and "left": those that a page cannot run, and why
    folder/data.bin              # the bytes of their arrays"""
import json
import sys
from ctypes import memmove, string_at
from pathlib import Path

from .. import launch
from ..arguments.c_types import CAddress
from ..arguments.pointers import with_reached
from ..errors import KernelError, plain_error
from ..kernel import Launch
from ..launch.library import Library
from ..packs import packs
from ..report import PRODUCT
from .build import PACKS

LARGEST, LONGEST = 1 << 20, 2_200_000    # bytes of a launch's arrays, accesses of its threads
TOGETHER = 1_600_000                     # bytes of all launches' arrays
COUNTS = "operation", "requests", "lanes", "bytes", "sectors", "wavefronts", "excess"    # of a site
OTHERS = {file.relative_to(pack.home / "include").as_posix() for pack in packs()[1:] if pack.home.name not in PACKS
          for file in (pack.home / "include").rglob("*")}            # headers of packs that a page has not


class Left(Exception):
    """Why a page cannot run a launch."""


class Recorder:
    def __init__(self, folder: Path):
        self.folder, self.seen, self.places = folder, set(), {}
        self.cell = 0                    # that runs, counted from the one behind the recorder's
        self.data = bytearray()
        self.sources, self.launches, self.left = [], [], []

    def note(self, asked: Launch, entry, library: Library, values: list) -> None:
        cell, name = self.cell, asked.kernel.__name__
        if (cell, name) in self.seen:
            return
        self.seen.add((cell, name))
        try:
            self.launches.append({"cell": cell} | self.described(asked, entry, library, values))
        except Left as why:
            self.left.append({"cell": cell, "kernel": name, "reason": str(why)})
        self.write()

    def entered(self, info) -> None:
        self.cell += 1

    def described(self, asked: Launch, entry, library: Library, values: list) -> dict:
        module, kernel = asked.kernel.module, asked.kernel
        text = next(key for key, found in library.entries.items() if found is entry)
        traced = module._library(True, *text)
        if traced.snapshot() != traced.in_memory().snapshot() or module.globals.given:
            raise Left("its variables were set from Python")
        entry = traced.entries[text]
        how = {"entry": entry.call, "kernel": kernel.__name__, "grid": asked.grid, "block": asked.block,
               "shared_bytes": asked.shared_bytes, "params": entry.parameters, "values": values,
               "library": traced.path}
        keep = []                        # what C points at
        asks = how | dict(zip(("params", "values"), with_reached(entry.parameters, values)))
        c = launch._describe(*asks.values(), entry.launch_bounds, launch.Context("both"), keep)
        cluster = asked.cluster, kernel.cluster_limit
        made = self.launch(c, asks["params"], len(values), kernel) | {"cluster": [*cluster[0], cluster[1]]}
        storages = [c.storages[i] for i in range(c.n_storages)]
        held = [[string_at(at, s.bytes) if at else None for at in (s.host, s.initialised)] for s in storages]
        try:
            made["laptop"] = _answer(how | {"cluster": cluster}, module, entry, kernel.shared_limit)
        finally:
            for s, (data, flags) in zip(storages, held):
                memmove(s.host, data, len(data))
                if flags is not None:
                    memmove(s.initialised, flags, len(flags))
        if len(self.data) + sum(len(data) for data, _ in held if data not in self.places) > TOGETHER:
            raise Left("the arrays of the launches before it are as much as a page may weigh")
        given = [{"bytes": len(data), "at": self.put(data), "written": self.written(flags)} for data, flags in held]
        entered = list(traced.entries).index(text)
        return made | {"storages": given, "source": self.source(traced, module), "entry": entered}

    def launch(self, c, parameters: list, count: int, kernel) -> dict:
        """`parameters`: so many of the kernel, and behind them arrays reached through addresses in values."""
        addresses = [[getattr(c.addresses[i], name) for name, _ in CAddress._fields_]
                     for i in range(c.n_addresses)]
        given = sum(p.kind == "pointer" for p in parameters[:count])
        if set(range(given, c.n_arrays)) - {array for *_, array, _ in addresses}:
            raise Left("an array of addresses is among its arguments")
        if sum(c.storages[i].bytes for i in range(c.n_storages)) > LARGEST:
            raise Left("its arrays are large for a page")
        args = []
        sizes = {argument: size for argument, _, size, *_ in addresses}
        for i, p in enumerate(parameters):
            if c.arg_array[i] < 0:
                size = sizes.get(i, max(p.itemsize * p.lanes, 1))
                args.append({"name": p.name, "dtype": p.dtype, "lanes": p.lanes,
                             "value": list(string_at(c.args[i], size))})
                continue
            a = c.arrays[c.arg_array[i]]
            named = {name: getattr(a, name) for name in ("itemsize", "storage", "offset", "bytes")}
            args.append({"name": p.name, "dtype": a.dtype.decode(), "const": p.const,
                         "shape": list(a.shape[:a.ndim]), "reached": i >= count} | named)
        return {"kernel": kernel.__name__, "grid": list(c.grid), "block": list(c.block), "args": args,
                "addresses": addresses, "shared": c.shared_bytes, "shared_limit": kernel.shared_limit,
                "max_threads": c.max_threads, "step_limit": c.step_limit}

    def put(self, data: bytes) -> int:
        """Where the bytes are among those of all launches, each once."""
        if data not in self.places:
            self.data += bytes(-len(self.data) % 16)
            self.places[data] = len(self.data)
            self.data += data
        return self.places[data]

    def written(self, flags: bytes | None) -> int | None:
        """Of the map of written bytes: None if all are, -1 if none is."""
        return None if flags is None else -1 if not any(flags) else self.put(flags)

    def source(self, library: Library, module) -> int:
        text = (library.path.parent / "kernel.cu.cpp").read_text(encoding="utf-8")
        if any(f"#include <{name}>" in text for name in OTHERS):
            raise Left("it uses instructions of a pack that the page has not")
        made = {"text": text, "name": module.name, "std": module._files[0].std,
                "lines": [file.as_read.split("\n") for file in module._files],
                "files": [module.name, *(file.path.name for file in module._files[1:])],
                "places": [_place(file.path, module) for file in module._files[1:]], "define": list(module._define)}
        if made not in self.sources:
            self.sources.append(made)
        return self.sources.index(made)

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        made = {"sources": self.sources, "launches": self.launches, "left": self.left}
        (self.folder / "launches.json").write_text(json.dumps(made), encoding="utf-8")
        (self.folder / "data.bin").write_bytes(self.data)


def start(folder: str | Path) -> None:
    recorder, original = Recorder(Path(folder)), Launch._run_here
    recorder.write()

    def recorded(self, entry, library, values):
        recorder.note(self, entry, library, values)
        return original(self, entry, library, values)
    Launch._run_here = recorded
    if shell := sys.modules["IPython"].get_ipython():
        shell.events.register("pre_run_cell", recorder.entered)


def _answer(how: dict, module, entry, shared_limit: int) -> dict:
    """What the laptop says of it."""
    done = []
    try:
        with launch.context(launch.Context("both", done=done.append)):
            launch.run(**how, source=module.source, source_name=module.name, shared_limit=shared_limit,
                       launch_bounds=entry.launch_bounds,
                       files={f.path.name: f.text for f in module._files[1:]})
    except KernelError as error:
        return {"error": plain_error(error)}
    result = done[0]
    accesses = sum(site["lanes"] // 16 + 1000 * site["requests"] if site["operation"] == PRODUCT else site["lanes"]
                   for site in result.sites)         # of a product, those that take as long
    if accesses > LONGEST:
        raise Left(f"its {accesses:,} accesses take long")
    places = result.places([site["pc"] for site in result.sites])
    sites = [places[site["pc"]]._asdict() | {name: site[name] for name in COUNTS} for site in result.sites]
    return {"sites": sites, "unique": result.unique_sectors, "barriers": result.barriers,
            "longest_thread": result.longest_thread, "notes": [plain_error(n) for n in result.notes]}


def _place(path: Path, module) -> str:
    """Of a file that a source includes: its path in the folder where the source's includes begin."""
    homes = [home.resolve() for home in (module._start, *module._include) if home]
    return next((path.relative_to(home).as_posix() for home in homes if path.is_relative_to(home)), path.name)
