"""The cells of an exercise, made from its declaration."""
from .declare import find
from .parts import Exercise


def cells(id: str) -> list[dict]:
    """Card, stub and check, as notebook cells without ids."""
    exercise = find(id)
    return [{"cell_type": "markdown", "metadata": {"tags": ["exercise-card"]}, "source": card(exercise)},
            _code(exercise.cell(exercise.stub), "exercise"), _code(check_line(exercise), "check")]


def _code(source: str, tag: str) -> dict:
    return {"cell_type": "code", "metadata": {"tags": [tag]}, "source": source, "outputs": [],
            "execution_count": None}


def check_line(exercise: Exercise) -> str:
    return f'{exercise.name} = check("{exercise.id}", {exercise.name})'


def card(exercise: Exercise) -> str:
    """The markdown card: what to build, how hard, how long, hints to unfold."""
    dots = "●" * exercise.difficulty + "○" * (5 - exercise.difficulty)
    points = f"{exercise.points:g} point{'' if exercise.points == 1 else 's'}"
    parts = [f"### Exercise {exercise.id} · {exercise.title}",
             (f"*{exercise.kind} · difficulty {dots} ({exercise.difficulty} of 5) · "
              f"{exercise.minutes:g} minutes · {points}*"),
             exercise.card]
    if exercise.options:
        parts.append("\n".join(f"- **{key}** · {text}" for key, text in exercise.options.items()))
    if exercise.given:
        parts.append("Given: " + ", ".join(f"`{name}`" for name in exercise.given) + ".")
    if exercise.on_trust:
        parts.append("The check watches *how* your code does it, while it runs: it finds slips, and is no guard against tricks.")
    parts += [f"<details><summary>Hint {i}</summary>\n\n{hint}\n\n</details>"
              for i, hint in enumerate(exercise.hints, 1)]
    return "\n\n".join(parts)
