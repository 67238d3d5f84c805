"""A folder as models are published in: config.json, weights in safetensors, mapped and never copied.

A safetensors file is 8 bytes with the length of a header, the header in JSON (of each tensor its kind, shape
and place), and the numbers. A model of several files has an index that says which tensor is in which. """
import json
import mmap
import struct
from pathlib import Path

import torch
from torch import Tensor

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}
SMALL = "tensors of kind {} are quantised weights, which are not read here"


class BadCheckpoint(ValueError):
    """A folder that cannot be opened. The message begins with the file and the key in it."""

    def __init__(self, file: str, key: str | None, said: str):
        super().__init__(f"{file}: {key + ': ' if key else ''}{said}")
        self.file, self.key = file, key


class Folder:
    """`files` says of each tensor in which file it is; `tensor` maps it."""

    def __init__(self, path):
        self.path = Path(path)
        if not self.path.is_dir():
            raise BadCheckpoint(str(path), None, "no such folder; a model is a folder with config.json and "
                                "*.safetensors")
        self.config = self.json("config.json")
        if self.config.get("quantization_config"):
            raise BadCheckpoint("config.json", "quantization_config", "quantised weights are not read here")
        self.files, self.headers = {}, {}
        for name in self.names():
            self.headers[name] = header = SafeFile(self.path / name)
            for key in header.places:
                if key in self.files:
                    raise BadCheckpoint(name, key, f"it is in {self.files[key]} too")
                self.files[key] = name
        if self.weight_map is not None:
            for key, name in self.weight_map.items():
                if self.files.get(key) != name:
                    raise BadCheckpoint(name, key, "missing; model.safetensors.index.json says that it is "
                                        "in this file")

    def json(self, name: str, needed: bool = True) -> dict | None:
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            if not needed:
                return None
            raise BadCheckpoint(name, None, f"missing in {self.path}") from None
        except ValueError as error:
            raise BadCheckpoint(name, None, f"not JSON: {error}") from None
        if not isinstance(found, dict):
            raise BadCheckpoint(name, None, f"expected an object in JSON, got {type(found).__name__}")
        return found

    def names(self) -> list[str]:
        """The files with weights."""
        self.weight_map = None
        if (self.path / "model.safetensors").exists():
            return ["model.safetensors"]
        index = self.json("model.safetensors.index.json", needed=False)
        if index is None:
            other = sorted(file.name for file in self.path.iterdir()
                           if file.suffix in (".bin", ".pt", ".pth", ".gguf"))
            raise BadCheckpoint("model.safetensors", None, f"missing in {self.path}" + (
                f"; {', '.join(other)} is not read: only safetensors are" if other else ""))
        self.weight_map = index.get("weight_map")
        if not isinstance(self.weight_map, dict) or not self.weight_map:
            raise BadCheckpoint("model.safetensors.index.json", "weight_map",
                                "expected the file of each tensor")
        for key, name in self.weight_map.items():
            if not isinstance(name, str) or Path(name).name != name:
                raise BadCheckpoint("model.safetensors.index.json", key,
                                    f"expected the name of a file here; got {name!r}")
            if not (self.path / name).exists():
                raise BadCheckpoint(name, key, "the file is missing; model.safetensors.index.json names it")
        return sorted(set(self.weight_map.values()))

    def shape(self, key: str) -> tuple:
        return self.headers[self.files[key]].places[key][1]

    def tensor(self, key: str) -> Tensor:
        return self.headers[self.files[key]].tensor(key)

    def bad(self, key: str, said: str) -> BadCheckpoint:
        return BadCheckpoint(self.files[key], key, said)


class SafeFile:
    """One safetensors file: places[key] is (dtype, shape, begin, end), checked against the file's length."""

    def __init__(self, path: Path):
        self.name, size = path.name, path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if 8 + length > size:
                raise BadCheckpoint(self.name, None, f"truncated: its header does not fit into {size} bytes")
            try:
                header = dict(json.loads(file.read(length)))
            except (ValueError, TypeError) as error:
                raise BadCheckpoint(self.name, None, f"its header is not JSON: {error}") from None
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        header.pop("__metadata__", None)
        self.places = {key: self.place(key, about, 8 + length, size) for key, about in header.items()}

    def place(self, key: str, about: dict, first: int, size: int) -> tuple:
        try:
            kind, shape, (begin, end) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
            numbers = torch.Size(shape).numel()
        except (KeyError, TypeError, ValueError):
            raise BadCheckpoint(self.name, key,
                                f"expected dtype, shape and data_offsets; got {about!r}") from None
        if kind not in DTYPES:
            raise BadCheckpoint(self.name, key, SMALL.format(kind))
        if first + end > size:
            raise BadCheckpoint(self.name, key, f"truncated: it ends at byte {first + end}, and the file at "
                                f"{size}")
        if begin < 0 or end - begin != numbers * DTYPES[kind].itemsize:
            raise BadCheckpoint(self.name, key, f"{kind} of shape {shape} does not take {end - begin} bytes")
        return DTYPES[kind], shape, first + begin, numbers

    def tensor(self, key: str) -> Tensor:
        dtype, shape, begin, numbers = self.places[key]
        if not numbers:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.bytes, dtype=dtype, count=numbers, offset=begin).view(shape)
