"""Deadlines: how much a late hand-in loses. The time of a hand-in is the one in the name that Brightspace or
Blackboard gave it, else that of its file. Canvas's word, which depends on Canvas's own deadline, is a note."""
import datetime
import math
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from .identity import late_by_name
from .submissions import Submission


@dataclass
class LateRule:
    """`due`: chapter -> moment, "" for all others. Each day after it costs `percent`; after `most`, all."""
    due: dict[str, datetime.datetime] = field(default_factory=dict)
    percent: float = 0.0
    most: int | None = None
    grace: float = 0.0              # minutes

    def share(self, submission: Submission) -> tuple[float, str]:
        """(the share of its points that a hand-in keeps, a note); `extension` (hours) moves the deadline."""
        hours = self._hours(submission)
        if hours is None:
            return 1.0, ""
        said = late_by_name(PurePosixPath(submission.file))
        if hours * 60 <= self.grace:
            return 1.0, "Canvas has it as late, its date does not" if said else ""
        days = math.ceil(hours / 24)
        lost = 100.0 if self.most is not None and days > self.most else min(100.0, days * self.percent)
        return 1 - lost / 100, f"handed in {_duration(hours)} late: {lost:g} % off" + (
            " (by the date of its file: Canvas's name for it does not say late)" if said is False else "")

    def _hours(self, submission: Submission) -> float | None:
        due = self.due.get(submission.chapter, self.due.get(""))
        if due is None or submission.problem or not submission.cells:
            return None
        return (submission.sent - due.timestamp()) / 3600 - float(submission.row.get("extension") or 0)

    def doubt(self, submissions: list[Submission]) -> str:
        """What to say where the dates of files seem to be those of unpacking them."""
        late = [(s.sent, hours) for s in submissions if (hours := self._hours(s)) is not None]
        in_time = any(hours * 60 <= self.grace for _, hours in late)
        if len(late) < 3 or in_time or max(late)[0] - min(late)[0] > 600:
            return ""
        return ("by the dates of their files all came late, and within ten minutes: is that when you unpacked them? "
                "Then unpack with a program that keeps dates, or mark without --due")


def read_rule(due: list[str], percent: float, most: int | None, grace: float) -> LateRule:
    """From the command line: `2026-05-01T23:59`, or `gqa=2026-05-01T23:59` for one chapter."""
    from course_lib.exercises.declare import chapter_word
    moments = {}
    for text in due:
        chapter, _, moment = text.rpartition("=")
        try:
            moments[chapter_word(chapter) if chapter else ""] = datetime.datetime.fromisoformat(moment)
        except ValueError as error:
            raise ValueError(f"--due {text}: {error}") from None
    return LateRule(moments, percent, most, grace)


def _duration(hours: float) -> str:
    return (f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 48
            else f"{hours / 24:.1f} days")
