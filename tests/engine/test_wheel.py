"""The engine as a package of its own: built, installed without torch and without the course, and used."""
import importlib
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import test_core

from laptop_cuda import build
from laptop_cuda.toolchain import shipped

pytestmark = pytest.mark.slow

BESIDE = {"setup.py", "pyproject.toml", "build", "laptop_cuda.egg-info", "built", "tests"}    # not of a wheel

USE = '''import importlib.util, sys
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("course_lib") is None
''' + test_core.USE + '''
out = cuda.empty(64)
assert isinstance(out, np.ndarray) and "torch" not in sys.modules
try:
    with cuda.sanitize():
        mod.turn[2, 32](out, y, 64)
except cuda.KernelError as error:
    print(error.kind)
'''


def linked(folder: Path, *packages: str) -> Path:
    """A folder that has `packages` of this Python."""
    folder.mkdir()
    for package in packages:
        for path in Path(importlib.import_module(package).__file__).parents[1].glob(f"{package}*"):
            (folder / path.name).symlink_to(path)
    return folder


def built(folder: Path, *options: str, python: str | Path = sys.executable, **environment: str) -> Path:
    source = folder / "source"
    package = build.PACKAGE
    if not (package / "pyproject.toml").exists():
        pytest.skip("not run: the engine is installed here, its source is not")
    subprocess.run(["cp", "-r", str(package), str(source)], check=True)
    subprocess.run([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", *options,
                    "--wheel-dir", str(folder), str(source)], check=True, env=os.environ | environment)
    return next(folder.glob("laptop_cuda-*.whl"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A Python that has pip alone."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(bare, tmp_path_factory) -> Path:
    """As pip builds it in isolation: what is needed is on PYTHONPATH."""
    folder = tmp_path_factory.mktemp("wheel")
    return built(folder, python=bare, PYTHONPATH=str(linked(folder / "needed", "numpy", "setuptools")))


def test_it_is_of_one_platform_and_has_the_runtime(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "py3-none-linux" in wheel.name and not any(name.endswith("setup.py") for name in names)
    assert f"laptop_cuda/built/runtime-{build.engine_digest()}.so" in names
    ours = {str(p.relative_to(build.PACKAGE.parent)) for p in build.PACKAGE.rglob("*") if p.is_file()}
    assert not [name for name in ours - set(names) if "__pycache__" not in name and not name.endswith(".md")
                and not BESIDE & set(name.split("/"))]


def test_one_for_arm64_is_built_on_another_machine(tmp_path, needs):
    needs("aarch64-linux-gnu-g++")
    made = built(tmp_path, "--config-settings=--build-option=--plat-name=linux_aarch64",
                 CXX="aarch64-linux-gnu-g++")
    assert "py3-none-linux_aarch64" in made.name
    with zipfile.ZipFile(made) as archive:
        machine = archive.read(f"laptop_cuda/built/runtime-{build.engine_digest()}.so")[18:20]
    assert machine == b"\xb7\x00"                    # EM_AARCH64


def test_a_runtime_that_does_not_load_is_built_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    (tmp_path / f"runtime-{build.engine_digest()}.so").write_text("made for a newer system")
    assert shipped.brought(build.engine_digest()) is None and shipped.brought("of other files") is None
    assert build.runtime_library().is_relative_to(build.cache())


def clean_environment(**more: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COURSE_CACHE")} | more


def test_with_numpy_alone_it_compiles_runs_profiles_and_sanitizes(wheel, bare, tmp_path):
    import numpy
    site = subprocess.run([bare, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                          capture_output=True, text=True, check=True).stdout.strip()
    for folder in Path(numpy.__file__).parents[1].glob("numpy*"):       # NumPy without a network
        (Path(site) / folder.name).symlink_to(folder)
    subprocess.run([bare, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
                   check=True)
    done = subprocess.run([bare, "-c", USE], cwd=tmp_path, capture_output=True, text=True,
                          env=clean_environment(LAPTOP_CUDA_CACHE=str(tmp_path / "cache")))
    assert done.stdout.split() == ["found", "run", "uninitialized"], done.stdout + done.stderr
    assert not list((tmp_path / "cache").rglob("runtime-*")), "the wheel's runtime is used, none is built"


def test_the_engine_names_nothing_of_the_course():
    words = ("course_lib", "course::", "COURSE_", "attention-course", "EXERCISE", "kernels/laptop")
    found = [path for path in build.PACKAGE.rglob("*")
             if path.suffix in (".py", ".h", ".cuh", ".cpp", ".md", ".toml")]
    assert len(found) > 60
    for path in found:
        text = path.read_text(encoding="utf-8")
        assert not [w for w in words if w in text], path
