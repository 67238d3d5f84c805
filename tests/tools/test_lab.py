"""What `python -m course_lib lab` does before JupyterLab starts."""
import os
import shutil

import nbformat
from nbformat.sign import NotebookNotary

from course_lib.tools import lab
from course_lib.tools.notebooks import chapter_notebooks


def test_a_copy_is_trusted_as_long_as_it_is_as_shipped(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setattr(lab, "WORK", tmp_path)
    sources, signed, begun = chapter_notebooks()[:3], [], []
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
