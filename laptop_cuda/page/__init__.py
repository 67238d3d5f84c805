"""Kernels in a page of a browser: sources with hooks and the runtime as one WebAssembly module."""
from pathlib import Path

from .build import NoWasm, Source, missing, module

__all__ = ["LAUNCH", "RECORD", "NoWasm", "Source", "missing", "module"]
LAUNCH = Path(__file__).parent / "launch.js"     # one launch in a module, in JavaScript
RECORD = Path(__file__).parent / "record.py"
