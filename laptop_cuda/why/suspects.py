"""Which of the lines that a value depends on to look at first: an order of likelihood, no proof.

A line weighs as much as it computes, and more where it fits what is seen: an element that is not a number
comes from infinities, quotients and exponentials; one that no thread stored, from conditions and indices; a
value that is carried from turn to turn is easily updated wrongly. The numbers below were chosen on the wrong
answers of a course's kernel exercises, where this order alone has the guilty line among the first three in 51
of 86. What was tried (`why/trials.py`) outweighs it."""
import math
from dataclasses import dataclass

from ..text.effects import Effect

NOT_WORK = set("(){}[];,.")
INDICES = {"threadIdx", "blockIdx", "blockDim", "gridDim"}
DELICATE = {"expf", "exp", "logf", "log", "sqrtf", "rsqrtf", "/"}
INFINITE, RISKY, REACHES, CARRIED, LOOP, PLACE = 20.0, 4.0, 4.0, 2.0, 0.6, 0.4
TRIED = 1000.0


@dataclass(frozen=True)
class Suspect:
    line: int
    text: str
    reason: str


def rank(text: str, reach: dict[Effect, int], value, written: bool, tried: dict[int, float]) -> list[Suspect]:
    """`reach` are the statements that the element depends on, with their distance; `value` is what it holds;
    `tried` says of lines which share of the wrong elements a change of them makes right."""
    source, best = text.split("\n"), {}
    for s, distance in reach.items():
        weight, reason = _weight(s, value, written)
        weight *= 30 / (30 + distance)
        if weight > best.get(s.line, (0, ""))[0]:
            best[s.line] = weight, reason
    for line, share in tried.items():
        weight, _ = best.get(line, (1, ""))
        reason = ("with one small change here the values are right" if share > 0.8 else
                  "with one small change here more of the values are right")
        best[line] = weight + TRIED * share, reason
    ranked = sorted(best, key=lambda line: (-best[line][0], line))
    return [Suspect(line, source[line - 1].strip(), best[line][1]) for line in ranked]


def _weight(s: Effect, value, written: bool) -> tuple[float, str]:
    words = s.words
    weight, reason = float(len([w for w in words if w not in NOT_WORK])), "the value is computed with it"
    if words[0] == "for":
        weight, reason = weight * LOOP, "it says how often and from where"
    elif s.is_condition:
        reason = "it decides what runs"
    elif s.assigns & s.uses or {"+=", "-=", "*=", "/="} & set(words):
        weight, reason = weight * CARRIED, "its value is carried on from what it was"
    if written and not s.is_condition and INDICES & set(words) and "[" not in words:
        weight, reason = weight * PLACE, "it says which element a thread has"
    if not written and (s.is_condition or INDICES & set(words)):
        weight, reason = weight * REACHES, "it decides which threads store, and where"
    if isinstance(value, float) and not math.isfinite(value):
        if "INFINITY" in words:
            weight, reason = weight * INFINITE, "an infinity, and the element is not a finite number"
        elif DELICATE & set(words):
            weight, reason = weight * RISKY, "it can give what is not a finite number"
    return weight, reason
