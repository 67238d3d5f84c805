"""run, fresh, clean, doctor and lab, on copies."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.tools import clean, clean_kernel, doctor, fresh, install, lab, notebooks as notebooks_tool
from course_lib.__main__ import main
from course_lib.teaching import solve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def toy(tmp_path):
    """A notebook as an editor leaves it: times, versions, counts out of order, empty and stale cells."""
    path = tmp_path / "01_toy.ipynb"
    cells = [new_markdown_cell("# 1 · Toy\n"), new_code_cell("import course_lib\n\n", execution_count=7),
             new_code_cell(""), new_code_cell("print('one')\nprint('two')", execution_count=3,
                           metadata={"execution": {"iopub": "12:00"}, "tags": ["x"]}),
             new_code_cell("{'b': 1}"),
             new_code_cell("raise ValueError('asked for')", metadata={"tags": ["raises-exception"]})]
    book = new_notebook(cells=cells, metadata={"kernelspec": {"name": "gone", "display_name": "Gone"},
                                               "language_info": {"name": "python", "version": "3.9.1"}})
    nbformat.write(book, path)
    return path


def test_run_gives_the_canonical_form(toy, capsys):
    assert notebooks_tool.run([str(toy)]) == 0
    text = toy.read_text()
    book = nbformat.reads(text, 4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3, 4]
    assert code[1].outputs[0].text == "one\ntwo\n" and len(code[1].outputs) == 1
    assert code[1].metadata == {"tags": ["x"]}
    assert code[3].outputs[0].traceback == ["\x1b[31mValueError\x1b[39m: asked for"]
    assert (book.metadata == {"kernelspec": {"display_name": "Python 3", "language": "python",
                                             "name": "python3"}, "language_info": {"name": "python"}})
    for trace in ("12:00", "3.9.1", str(toy.parent), "site-packages"):
        assert trace not in text
    assert notebooks_tool.run([str(toy)]) == 0
    assert toy.read_text() == text
    assert capsys.readouterr().out.endswith("no change\n")
    assert list(toy.parent.iterdir()) == [toy]


def test_run_leaves_a_failing_notebook_as_it_was(tmp_path, capsys):
    path = tmp_path / "x.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("## The fault"), new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    assert notebooks_tool.run([str(path)]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().out
    assert 'under "The fault"' in said and "ZeroDivisionError" in said


@pytest.mark.parametrize("name, said", [("torch", "train: No module named 'torch', which the course needs"),
                                        (None, "train: pip install")])
def test_what_is_not_installed_is_one_line(name, said, capsys, monkeypatch):
    def command(argv):
        raise ModuleNotFoundError("No module named 'torch'" if name else "pip install it", name=name)
    monkeypatch.setattr("course_lib.language_model.train_command.train_command", command)
    assert main(["train"]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_run_refuses_what_is_not_there(capsys):
    assert notebooks_tool.run(["no_such.ipynb"]) == 2
    assert notebooks_tool.run(["99"]) == 2
    assert "no chapter '99'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "lint"])
@pytest.mark.parametrize("name", ["03_broken.ipynb", "mine.ipynb"])
def test_what_is_no_notebook_is_one_line(command, name, tmp_path, capsys):
    path = tmp_path / name
    path.write_text('{"cells": 3')
    assert main([command, str(path)]) == 1
    assert path.read_text() == '{"cells": 3'
    said = capsys.readouterr()
    assert "notebook" in said.out.lower() and "Traceback" not in said.out + said.err


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["export", "nbgrader", "0", "--out", str(tmp_path / "file" / "x")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("export: ") and said.count("\n") == 1


def test_a_command_that_was_stopped_says_how_to_go_on(monkeypatch, capsys):
    def stopped(argv):
        raise KeyboardInterrupt(*argv)

    monkeypatch.setattr(doctor, "main", stopped)
    assert main(["doctor", "stopped after step 3 of 9; the same call goes on"]) == 130
    assert capsys.readouterr().err == "\nstopped after step 3 of 9; the same call goes on\n"
    assert main(["doctor"]) == 130 and capsys.readouterr().err == "\nstopped\n"


def test_solve_does_not_write_over_notebooks(house, monkeypatch, capsys):
    monkeypatch.setattr(solve, "WORK", house / "work")
    (house / "work").mkdir(exist_ok=True)
    (house / "work" / "03_gqa.ipynb").write_text("my answers")
    assert solve.main(["3", "--out", str(house / "work")]) == 2
    assert "your own answers" in capsys.readouterr().err
    assert (house / "work" / "03_gqa.ipynb").read_text() == "my answers"


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A clone's notebooks/ and work/ somewhere else."""
    (tmp_path / "notebooks").mkdir()
    for name in ("00_start_here", "03_gqa"):
        nbformat.write(new_notebook(cells=[new_markdown_cell(f"the {name} that ships")]),
                       tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.setattr(notebooks_tool, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks_tool, "NOTEBOOKS", tmp_path / "notebooks")
    for module in (fresh, clean):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(fresh, "WORK", tmp_path / "work")
    return tmp_path


def test_fresh_never_overwrites(house, capsys):
    assert fresh.fresh(["--missing"]) == 0
    answers = house / "work" / "03_gqa.ipynb"
    answers.write_text("my answers")
    assert fresh.fresh(["--missing"]) == 0
    for chapter in ("3", "gqa"):
        assert fresh.fresh([chapter]) == 0
    assert answers.read_text() == "my answers"
    assert capsys.readouterr().out == "work/03_gqa_2.ipynb\nwork/03_gqa_3.ipynb\n"
    assert "the 03_gqa that ships" in (house / "work" / "03_gqa_3.ipynb").read_text()
    assert len(list((house / "work").iterdir())) == 4
    assert fresh.fresh(["12"]) == 2


def test_clean_empties_the_caches_and_nothing_else(house, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(house / "cache"))
    monkeypatch.delenv("COURSE_CACHE", raising=False)
    built = [house / ".build" / "cuda" / "a" / "x.so", house / "cache" / "laptop_cuda" / "cuda" / "y.so"]
    for file in [*built, house / "work" / "mine.ipynb"]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"0" * 1000)
    assert clean.clean([]) == 0
    assert not any(file.exists() for file in built) and (house / "work" / "mine.ipynb").exists()
    assert clean.clean([]) == 0
    assert "0.0 MB freed" in capsys.readouterr().out


def test_clean_knows_where_builds_go():
    from laptop_cuda import build

    assert any(build.cache().is_relative_to(folder) for folder in clean.build_folders())


def test_doctor_here():
    done = subprocess.run([sys.executable, "-m", "course_lib", "doctor"], cwd=ROOT, capture_output=True,
                          text=True)
    missing = [finding for finding in doctor.examine() if finding.required and not finding.found]
    assert done.returncode == bool(missing), done.stdout
    assert len(done.stdout.splitlines()) <= 40, "one screen"
    assert "torch" in done.stdout and "ninja" in done.stdout


def test_doctor_without_a_compiler(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert doctor.main([]) == 1
    said = capsys.readouterr().out
    assert "MISSING  C++ compiler" in said and "no-such-compiler is not there" in said
    for command in ("sudo apt install g++", "sudo dnf install gcc-c++", "xcode-select --install",
                    "cxx-compiler", "WSL"):
        assert command in said
    assert "the kernels do not" in said


def test_doctor_without_torch(monkeypatch, capsys):
    from importlib import util

    real = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest))
    assert doctor.main([]) == 1
    said = capsys.readouterr().out
    assert "MISSING  torch" in said and "cannot run here before this is found: torch" in said


def test_doctor_says_the_same_on_every_machine_in_a_notebook(monkeypatch, capsys):
    monkeypatch.setenv("COURSE_BATCH", "1")
    doctor.show()
    said = capsys.readouterr().out
    assert ("GPU" not in said and "/" not in said and "2.13" not in said
            and said.endswith("The course runs here.\n"))


def test_lab_without_a_browser(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert ("--no-browser" in lab.command(["--port", "9000"]) and lab.command(["--port", "9000"])[-2:]
            == ["--port", "9000"])
    monkeypatch.setenv("DISPLAY", ":0")
    assert "--no-browser" not in lab.command([])


def test_lab_as_root_and_as_a_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-root" in lab.command([])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--allow-root" not in lab.command([])


def test_lab_in_a_home_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "ROOT", tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path.home())
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.delenv(name, raising=False)
    env = lab.environment()
    assert all(Path(env[name]).is_relative_to(tmp_path)
               for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"))


def test_kernels_find_the_course_and_the_tools(monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "x")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    env = clean_kernel.environment()
    assert "PYTEST_CURRENT_TEST" not in env and "PYTHONWARNINGS" not in env
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """What the installer reads, in a folder with a space and an accent, and a record of what it calls."""
    folder = tmp_path / "a clone é"
    folder.mkdir()
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    calls = []
    monkeypatch.setattr(install, "ROOT", folder)
    monkeypatch.setattr(install, "VENV", folder / ".venv")
    monkeypatch.setattr(install, "STAMP", folder / ".venv" / "course-is-installed")
    monkeypatch.setattr(install, "note_on_size", lambda pip_args: None)
    real = install.call

    def call(*command):
        calls.append([str(part) for part in command])
        if "venv" in calls[-1]:
            real(*command, "--without-pip")
        elif "-r" in calls[-1] and clone_fails:
            raise subprocess.CalledProcessError(1, calls[-1])

    clone_fails = []
    monkeypatch.setattr(install, "call", call)
    return folder, calls, clone_fails


@pytest.mark.slow
def test_install_goes_on_where_it_was_stopped(clone, monkeypatch, capsys):
    folder, calls, fails = clone
    monkeypatch.setenv("PIP_ARGS", "--extra-index-url 'https://a.example/x y'")
    fails.append(True)
    assert install.main() == 1 and not install.is_ready()
    assert "Call again" in capsys.readouterr().err
    fails.clear()
    assert install.main() == 0 and install.is_ready()
    assert [call for call in calls if "-r" in call][-1][-2:] == ["--extra-index-url", "https://a.example/x y"]
    before = len(calls)
    assert install.main() == 0 and len(calls) == before, "a second call does nothing"
    (folder / "requirements.txt").write_text("torch==2.13.0\n")
    assert not install.is_ready()
    assert install.main() == 0 and len(calls) > before


def test_install_in_a_folder_that_cannot_be_written(clone, capsys):
    folder, calls, _ = clone
    (folder / ".build").write_text("a file where the folder should be")
    assert install.main() == 1 and not calls
    assert "cannot be written" in capsys.readouterr().err


def test_install_mends_a_broken_venv(clone):
    folder, calls, _ = clone
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").write_text("half a file")
    assert install.main() == 0
    assert any("--clear" in call for call in calls)
    assert subprocess.run([folder / ".venv" / "bin" / "python", "-c", ""]).returncode == 0


def test_make_says_what_is_missing():
    make = shutil.which("make")
    if make is None:
        pytest.skip("not run: make is missing")
    done = subprocess.run([make, "ready", "PYTHON=no-such-python"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode and "No Python 3.11 or newer was found under the name "
            "no-such-python" in done.stderr)


def test_a_copy_is_trusted_as_long_as_it_is_as_shipped(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setattr(lab, "WORK", tmp_path)
    sources, signed, begun = notebooks_tool.chapter_notebooks()[:3], [], []
    shutil.copy(sources[2], tmp_path)
    monkeypatch.setattr(lab, "chapter_notebooks", lambda: sources)
    monkeypatch.setattr(lab, "fresh", lambda _: [shutil.copy(source, tmp_path) for source in sources[:2]])
    monkeypatch.setattr(lab, "trust", lambda paths, trust=lab.trust: (signed.append(paths), trust(paths)))
    monkeypatch.setattr(lab.os, "execv", lambda *command: begun.append(command))
    monkeypatch.setattr(lab.os, "environ", dict(os.environ))
    monkeypatch.chdir(tmp_path)
    lab.main([])
    lab.main([])
    # the second start reads no notebook
    assert signed == [[tmp_path / source.name for source in sources[:2]]]
    lab.main(["2", "--port", "9000"])
    assert "--LabApp.default_url=/lab/tree/" + tmp_path.name + "/02_rope.ipynb" in begun[2][1]
    assert begun[2][1][-2:] == ["--port", "9000"] and lab.main(["nothing"]) == 2 and len(begun) == 3
    kept, changed = (tmp_path / source.name for source in sources[:2])
    changed.write_text(changed.read_text().replace("Attention", "Tension", 1))
    trusted = [NotebookNotary().check_signature(nbformat.read(copy, as_version=4))
               for copy in (kept, changed)]
    assert trusted == [True, False]
