"""The league as one static HTML file: all students, and for each problem par, best and bound."""
from __future__ import annotations

from ..report import escape, head
from . import model
from .language import data
from .problem import LeagueProblem
from .score import COUNTS, Score

TITLES = {"sectors": "sectors", "wavefronts": "passes over the banks", "barriers": "barriers",
          "shared_bytes": "shared memory (bytes)"}


def page(problems: list[LeagueProblem], scores: dict[str, dict[str, Score]], par: dict[str, Score],
         least: dict[str, int], seed: int) -> str:
    parts = [head("League"), "<h1>League</h1>", _standing(problems, scores, least)]
    parts += [_problem(p, scores, par[p.id], least[p.id]) for p in problems]
    parts.append(_model(scores, par.get(model.ID), data(seed).entropy))
    return "\n".join(parts) + "\n</body></html>\n"


def efficiency(made: Score | None, least: int) -> float:
    """The share of the moved sectors that no kernel can do without; 0 without a score."""
    return least / made.counts[0] if made and made.counts else 0.0


def _standing(problems, scores, least) -> str:
    """All students by the mean over the kernels, equal ones by the sums of the other counts."""
    def key(student: str):
        theirs = [scores[student].get(p.id) for p in problems]
        mean = sum(efficiency(s, least[p.id]) for s, p in zip(theirs, problems)) / len(problems)
        rest = [sum(s.counts[i] for s in theirs if s and s.counts) for i in range(1, len(COUNTS))]
        return -mean, *rest, student
    rows = "".join(
        f"<tr><td>{escape(student)}</td><td>{-key(student)[0]:.1%}</td>"
        f"<td>{sum(bool(s.counts) for s in scores[student].values())}</td></tr>\n"
        for student in sorted(scores, key=key))
    return ("<table><thead><tr><th>student</th><th>of the sectors moved, could not be avoided</th>"
            f"<th>problems</th></tr></thead><tbody>\n{rows}</tbody></table>")


def _problem(problem, scores, par: Score, least: int) -> str:
    made = sorted((theirs[problem.id].counts, student) for student, theirs in scores.items()
                  if theirs.get(problem.id) and theirs[problem.id].counts)
    rows = [("bound", (least,), "no kernel can do with fewer"), ("par", par.counts or (), "a plain kernel")]
    if made:
        rows.insert(1, ("best", made[0][0], made[0][1]))
    rows += [(_place(made, counts), counts, student) for counts, student in made]
    body = "".join(_row(*row) for row in rows)
    heads = "".join(f"<th>{TITLES[name]}</th>" for name in COUNTS)
    return (f"<h2>{escape(problem.title)}</h2><table><thead><tr><th></th><th></th>{heads}</tr></thead>"
            f"<tbody>\n{body}</tbody></table>")


def _model(scores, par: Score | None, entropy: float) -> str:
    """The training problem."""
    made = sorted((theirs[model.ID].counts, student) for student, theirs in scores.items()
                  if theirs.get(model.ID) and theirs[model.ID].counts)
    rows = [("entropy", "the language itself", f"{entropy:.4f}", "")]
    if made:
        rows.append(("best", made[0][1], *_learnt(made[0][0])))
    if par and par.counts:
        rows.append(("par", "a plain model", *_learnt(par.counts)))
    for counts, student in made:
        rows.append((_place(made, counts), student, *_learnt(counts)))
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return (f"<h2>{escape(model.TITLE)}</h2><p>No bound is proved. In expectation no model loses less than "
            "the language's own entropy; on the questions that were drawn one may, by luck. Equal scores "
            "share a place.</p><table><thead><tr><th></th><th></th><th>validation loss (nats)</th>"
            f"<th>FLOPs</th></tr></thead><tbody>\n{body}</tbody></table>")


def _place(made: list[tuple], counts: tuple[int, ...]) -> str:
    """Equal counts share a place."""
    return str(1 + sum(better < counts for better, _ in made))


def _learnt(counts: tuple[int, ...]) -> tuple[str, str]:
    return f"{counts[0] / model.UNIT:.4f}", f"{counts[1]:,}"


def _row(place: str, counts: tuple[int, ...], who: str) -> str:
    numbers = "".join(f"<td>{n:,}</td>" for n in counts) + "<td></td>" * (len(COUNTS) - len(counts))
    return f"<tr><td>{escape(place)}</td><td>{escape(who)}</td>{numbers}</tr>\n"
