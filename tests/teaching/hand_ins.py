"""Making hand-ins for tests: notebooks, files of an age, zip files."""
import io
import json
import os
import time
import zipfile
from pathlib import Path

from adversaries import hostile

RIGHT = "# EXERCISE 1.91" + hostile.HONEST


def notebook(*cells: str) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {},
                       "cells": [{"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [],
                                  "source": cell.splitlines(True)} for cell in cells]})


def put(path: Path, text: str | bytes, age: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (time.time() - age,) * 2)
    return path


def zipped(files: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()
