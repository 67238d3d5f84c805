"""`python -m course_lib clean`: empty the build cache."""
import argparse
import os
import shutil
import sys
from pathlib import Path

from course_lib.files import ROOT
from course_lib.tools.notebooks import shown_path
from laptop_cuda.build import user_cache


def clean(argv: list[str]) -> int:
    argparse.ArgumentParser("python -m course_lib clean",
                            description="Empty the build cache; the next launch builds what it needs again. "
                            "Notebooks and answers stay.").parse_args(argv)
    freed = 0
    for folder in build_folders():
        if not folder.is_dir():
            continue
        size = sum(file.stat().st_size for file in folder.rglob("*")
                   if file.is_file() and not file.is_symlink())
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            print(f"{shown_path(folder)}: not all of it could be removed", file=sys.stderr)
            return 1
        freed += size
        print(f"{shown_path(folder)}: {size / 1e6:.1f} MB")
    print(f"{freed / 1e6:.1f} MB freed")
    return 0


def build_folders() -> list[Path]:
    """Every place where `laptop_cuda.build.cache` may have put builds."""
    asked = os.environ.get("COURSE_CACHE")
    return [*([Path(asked) / "cuda"] if asked else []), ROOT / ".build", user_cache() / "cuda"]
