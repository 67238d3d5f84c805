"""What tests of marking share: hand-ins of notebooks, files of an age, zip files; walls, exercises of their own."""
import io
import json
import os
import sys
import time
import zipfile
from pathlib import Path

import pytest

from adversaries import forget_private_exercises, hostile
from course_lib.teaching.confined import walls

RIGHT = "# EXERCISE 1.91" + hostile.HONEST
MOODLE = "{}_{}_assignsubmission_file_"
linux = pytest.mark.skipif(sys.platform != "linux" or bool(walls.missing()), reason="not run: this machine "
                           "cannot build the walls: " + "; ".join(walls.missing()))


@pytest.fixture(autouse=True, scope="module")
def no_private_exercises_afterwards():
    yield
    forget_private_exercises()


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
