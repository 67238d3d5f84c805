"""One set of packages, said in three files; one list of commands; a Makefile without a machine's paths."""
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from course_lib.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# conda's name: pip's name
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
CONDA_ONLY = {"python", "pip", "make", "cxx-compiler", "setuptools"}


def bounds(lines) -> dict[str, str]:
    """{"torch": ">=2.11", ...}"""
    return {re.match(r"[\w-]+", line)[0].lower(): re.sub(r"^[\w-]+", "", line).strip() for line in lines}


def conda() -> tuple[list[str], list[str]]:
    """The channels and the packages of environment.yml (two flat lists: no YAML reader is needed)."""
    text = (ROOT / "environment.yml").read_text()
    found = {}
    for head in ("channels", "dependencies"):
        block = re.search(rf"^{head}:\n((?:  .*\n)+)", text, re.M)[1]
        found[head] = re.findall(r"^  - ([\w-].*[^:\n])$", block, re.M)
    return found["channels"], found["dependencies"]


def test_conda_and_pip_have_the_same_packages():
    ours = bounds(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"])
    theirs = {CONDA_NAMES.get(name, name): bound for name, bound in bounds(conda()[1]).items()
              if name not in CONDA_ONLY}
    assert set(theirs) == set(ours)
    for name in ours:
        assert theirs[name] == ours[name] or name == "nbval", name
    assert theirs["nbval"] == "=0.11" and ours["nbval"] == ">=0.11,<0.12"


def test_conda_channels_and_compiler():
    channels, packages = conda()
    assert channels == ["conda-forge", "nodefaults"]
    assert "cxx-compiler" in packages and "python>=3.11" in packages
    assert PROJECT["requires-python"] == ">=3.11"
    assert re.search(r"^  - pip:\n      - -e \.$", (ROOT / "environment.yml").read_text(), re.M)


def test_pins_are_exact_and_within_the_bounds():
    from packaging.requirements import Requirement

    pins = {}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()
            pins[name.lower().replace("_", "-")] = version
    for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(pins[wanted.name]), line
    assert pins["torch"] == "2.13.0"


def test_every_command_has_its_function():
    for name, (place, about) in COMMANDS.items():
        module, function = place.split(":")
        assert callable(getattr(importlib.import_module(module), function)), name
        assert about


def test_the_list_of_commands_and_a_wrong_one():
    shown = subprocess.run([sys.executable, "-m", "course_lib"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 2 and all(name in shown.stdout for name in COMMANDS)
    wrong = subprocess.run([sys.executable, "-m", "course_lib", "rnu"], cwd=ROOT, capture_output=True,
                           text=True)
    assert wrong.returncode == 2 and "no command 'rnu'" in wrong.stderr


def test_the_house_names_no_machine():
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "environment.yml", ".ci/run"):
        text = (ROOT / name).read_text()
        assert not re.search(r"(?<![\w.])/(home|Users|root|work|opt)/|index-url [^U\"']|find-links",
                             text), (name)
    assert "$(CURDIR)" not in (ROOT / "Makefile").read_text(), "make splits absolute paths at spaces"
