"""The folder of builds: what is removed when it has grown, and what is spared."""
import os
import time

from laptop_cuda.toolchain import cache


def test_the_builds_used_longest_ago_go_first_and_recent_ones_never(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "KEPT_BUILDS", 8)
    now = time.time()
    for n in range(9):
        (tmp_path / f"build{n}").mkdir()
        os.utime(tmp_path / f"build{n}", (now, now - 10_000 - n))
    (tmp_path / "runtime-1").mkdir()
    os.utime(tmp_path / "runtime-1", (0, 0))
    cache.used(tmp_path / "build8")                        # taken from the cache a moment ago
    cache.prune(tmp_path, tmp_path / "build0")             # no new build: nothing is removed
    assert len(list(tmp_path.iterdir())) == 10
    cache.prune(tmp_path, tmp_path / "new")
    assert ({p.name for p in tmp_path.iterdir()} == {*(f"build{n}" for n in (0, 1, 2, 3, 4, 5, 8)),
                                                     "runtime-1"})

    for path in tmp_path.glob("build*"):
        cache.used(path)
    for n in range(3):
        (tmp_path / f"more{n}").mkdir()
    cache.prune(tmp_path, tmp_path / "new")                # over the limit, and all of them in use
    assert len(list(tmp_path.iterdir())) == 11
