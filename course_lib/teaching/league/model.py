"""The training problem: the lowest validation loss for a fixed number of FLOPs."""
from __future__ import annotations

from course_lib.exercises.parts import Case, Exercise
from course_lib.exercises.verdict import PASSED
from .. import marking
from ..sandbox import Sandbox
from . import tensors
from .language import data
from .rule import NotAllowed
from .score import Score
from .submission import MOST_CONSTANTS, MOST_NODES, MOST_WEIGHTS, Submission, read
from .training import BUDGET, steps_of, trained

ID, NAME, TITLE = "91.11", "training", "Learn a language on a budget"
UNIT = 10_000                    # a score counts the loss in ten-thousandths of a nat
CARD = f"""
A language of {tensors.VOCAB} symbols is drawn, and you have never seen it. Say how to learn it: the
parameters, the logits of the next symbol, the update of one parameter. Your functions are called once, with
tensors that hold no numbers (`league`, imported above) and write down what is done with them. Our code then
carries it out: it trains on a text of the language until {BUDGET:,} FLOPs are spent, and asks for the symbol
after 2,048 pieces of another text. The mean loss there, in nats, decides; equal ones (to 4 digits) are
decided by the FLOPs that were used.

- `parameters()` gives `league.uniform(shape, spread, middle)` by name: at most {MOST_WEIGHTS:,} numbers.
- `logits(p, tokens)`: `tokens` is (BATCH, LENGTH), whole numbers as floats; the result is (BATCH, positions,
  {tensors.VOCAB}), for the last `positions` of them. We make its gradient.
- `update(p, g, states, t, done)`: a parameter, its gradient, STATES tensors like it that begin as zeros, the
  number of the step from 1, the share of the training that is over. Returns the parameter and the states.

Every operation counts, in the gradient and the update too: one FLOP per number that it makes, look-ups and
copies included; 32 for each exp and log; what it reads, for a sum or a maximum; 2 m k n for a product. Views
are free, and so are the questions. BATCH is a power of two up to 256, LENGTH at most 64; at most
{MOST_NODES:,} operations and {MOST_CONSTANTS} different constants. A training of very many or very slow steps
ends before the budget does, so that none takes much longer than 20 seconds. The arithmetic is float32, and
fixed bit by bit.
"""
PAR = """
BATCH, LENGTH, STATES = 64, 32, 2
WIDTH, HIDDEN, BEFORE = 16, 64, 4               # an MLP over the last four symbols


def parameters():
    return {"embed": league.uniform((league.VOCAB, WIDTH), 0.5),
            "into": league.uniform((BEFORE * WIDTH, HIDDEN), 0.2),
            "bias": league.uniform((HIDDEN,), 0.0),
            "out": league.uniform((HIDDEN, league.VOCAB), 0.2)}


def logits(p, tokens):
    n = LENGTH - BEFORE + 1
    x = p["embed"].rows(tokens)
    x = x.slice(1, 0, n).join([x.slice(1, i, i + n) for i in range(1, BEFORE)])
    hidden = (x @ p["into"] + p["bias"]).maximum(0.0)
    return hidden @ p["out"]


def update(p, g, states, t, done):               # Adam
    m = states[0] * 0.9 + g * 0.1
    v = states[1] * 0.99 + g * g * 0.01
    rate = (1.0 - done) * 0.01
    return p - rate * m / (v.sqrt() + 1e-6), [m, v]
"""
STUB = """
BATCH, LENGTH, STATES = 64, 32, 0


def parameters():
    return {}


def logits(p, tokens):
    ...                                          # your code


def update(p, g, states, t, done):
    ...                                          # your code
"""
SETUP = "from course_lib.teaching.league import tensors as league"
TRIAL = """
from course_lib.teaching.league.model import trial

trial(BATCH, LENGTH, STATES, parameters, logits, update)        # on another language than the marked one
"""
CALL = """


def program():
    return league.trace(BATCH, LENGTH, STATES, parameters, logits, update)
"""


def exercise() -> Exercise:
    """Judged is only whether a program comes; `score` trains it."""
    return Exercise(
        id=ID, title=TITLE, kind="write", language="python", name="program", points=1, minutes=120,
        difficulty=5, card=CARD.strip(), stub=STUB.strip() + CALL, solution_text=PAR.strip() + CALL,
        hints=[], misconceptions=[], given={"league": tensors}, cases=lambda rng: [Case(label="the program")],
        compare=_refused, limit=5.0)


def _refused(got, want=None, case=None) -> str | None:
    try:
        steps_of(read(got))
    except NotAllowed as error:
        return f"this cannot be trained: {error}"
    return None


def score(source: str, seed: int, sandbox: Sandbox) -> Score:
    """The loss in ten-thousandths of a nat, and the FLOPs. The student's process gives a program alone."""
    verdict, run = marking.mark_and_run(exercise(), source.rstrip() + CALL, seed, sandbox)
    if verdict.status != PASSED:
        return Score(None, verdict.headline)
    result = trained(read(run.outcomes[0].value), data(seed), seed)
    if result.loss is None:
        return Score(None, "The loss is not finite.")
    return Score((round(UNIT * result.loss), result.flops))


def trial(*submission, seed: int = 0) -> None:
    """Train as the league does, and print what came of it. For a notebook."""
    made: Submission = read(tensors.trace(*submission))
    result, known = trained(made, data(seed), seed), data(seed).entropy
    print(f"{result.steps} steps of {made.price:,} FLOPs; validation loss {result.loss}; "
          f"the language's own entropy {known:.4f}")
