"""Verdicts of earlier runs, kept in RESULTS/marks.json under everything that they depend on."""
import hashlib
import json
import secrets
from pathlib import Path

from course_lib.exercises.parts import Exercise
from course_lib.exercises.judging.verdict import Verdict
from course_lib.files import write_whole
from ..confined.probe import Refused
from ..reports import report
from . import marking


class Store:
    """The seed of a marking, and the verdicts that are known already."""

    def __init__(self, results: Path, seed: int | None):
        self.path = results / "marks.json"
        self.seed, self.verdicts = secrets.randbelow(1 << 31), {}
        if self.path.exists():
            try:
                kept = json.loads(self.path.read_text())
                self.seed, self.verdicts = int(kept["seed"]), dict(kept["verdicts"])
            except (ValueError, KeyError, TypeError):
                raise Refused(f"{self.path} is damaged: it held the seed and what is marked. Restore it, or move it "
                              "away to mark all anew") from None
        if seed is not None:
            self.seed = seed
        self.keys: set[str] = set()            # in use: the others are dropped
        # (student, exercise): verdicts for the next run to try again
        self.failed: dict[tuple[str, str], dict] = {}

    def key(self, exercise: Exercise, source: str) -> str:
        text = json.dumps([exercise.id, marking.fingerprint(exercise), self.seed, source])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]

    def get(self, exercise: Exercise, source: str) -> Verdict | None:
        key = self.key(exercise, source)
        self.keys.add(key)
        return report.verdict_from(self.verdicts[key]) if key in self.verdicts else None

    def put(self, exercise: Exercise, source: str, verdict: dict) -> None:
        self.verdicts[self.key(exercise, source)] = verdict

    def save(self) -> None:
        kept = {k: v for k, v in self.verdicts.items() if k in self.keys}
        write_whole(self.path, json.dumps({"seed": self.seed, "verdicts": kept}), durable=True)
