"""What `python -m course_lib lab` does before JupyterLab starts."""
import shutil

import nbformat
from nbformat.sign import NotebookNotary

from course_lib import lab
from course_lib.notebooks_tool import chapter_notebooks


def test_a_copy_is_trusted_as_long_as_it_is_as_shipped(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setattr(lab, "WORK", tmp_path)
    kept, changed = (shutil.copy(source, tmp_path / source.name) for source in chapter_notebooks()[:2])
    changed.write_text(changed.read_text().replace("Attention", "Tension", 1))
    lab.trust_copies()
    trusted = [NotebookNotary().check_signature(nbformat.read(copy, as_version=4)) for copy in (kept, changed)]
    assert trusted == [True, False]
