"""Exercises that say what went wrong.

A student uses eight functions: `check`, `hint`, `reveal`, `progress`, `reset`, `show_source` for reading, `why`
for a kernel with a wrong element, and `film` to see refused code go wrong.
A chapter's author declares exercises in `course_lib/exercises/chapters/`: what they say in `<word>.toml`, what is
computed (cases, comparisons, launches) in `<word>.py`; this docstring is how.

The number before the dot is the chapter: `0.x` is declared in `start_here.py`, `1.x` in `attention.py`,
and so on in the order of `CHAPTERS`. A module is imported when one of its ids is asked for, never before.

## An exercise in Python (`kind="write"` or `"repair"`)

In `<word>.py`:

    import torch
    from course_lib.exercises import Case, close, exercise

    def cases(rng):                       # rng: torch.Generator; the same seed gives the same cases
        for n, d in [(2, 3), (1, 1), (5, 8), (7, 33)]:              # the first is the smallest: it is shown
            yield Case(torch.randn(n, d, generator=rng), label=f"{n} rows of {d}")

    exercise(id="1.2", cases=cases, compare=close(atol=1e-5),
             properties=[("each row sums to 1", lambda got, case: (got.sum(-1) - 1).abs().max() < 1e-4)])

In `<word>.toml`:

    ["1.2"]
    title = "A softmax that does not overflow"
    kind = "write"
    points = 2
    minutes = 8
    difficulty = 2
    card = "Write `softmax`, so that large scores do no harm. Each row sums to 1."
    given = ["torch", "math"]                      # exactly the names that the student's cell may use
    solution = '''
    def softmax(x):
        "(n, d) -> (n, d)"
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)
    '''
    hints = ["What is exp(1000) in float32?", "Subtracting a number from a row does not change its softmax."]

    [["1.2".misconceptions]]
    name = "sums over the wrong axis"
    change = ["sum(-1, keepdim=True)", "sum(0, keepdim=True)"]
    ask = "Which entries should add up to 1: those of one row, or those of one column?"

    [["1.2".misconceptions]]
    ...

Each of these is also an argument of `exercise`, which goes before the file: an instructor's own exercises are declared
by arguments alone, with `misconceptions=[Misconception("sums over ...", change=(...), ask="..."), ...]`.

- `given`: modules in the file; as an argument also constants, dtypes, and functions: `given={"F": F}`. A function out
  of `course_lib` is carried over as its source text, so it may use only `torch`, `math`, `F`, `nn`, `einops` and the
  other given names.
- `stub`, `solution` and a misconception's `code` are source text. All must define the same name (`name=`; by
  default the last function or class of the stub). In a *repair* exercise the stub is the faulty code; in a *write*
  exercise without `stub=` it is the solution's signature and docstring.
- A misconception is either `code` (whole text), `body` (below the solution's `def` line), `change`, (old, new)
  or a list of such pairs, applied to the solution, or, for predict and choose, `value`. `name` continues
  "This looks like code that ..."; it is a verb in the third person.
- `call=`: a function `call(f, *args, **kwargs)` for what is not one plain call (a class, a sequence of
  appends, gradients). It is carried over as source, so it must stand alone: `torch`, `math`, `F`, `nn`,
  `einops` and given names only.
  It returns a tensor, number, string, or tuple/list/dict of such.
- `cases` values are tensors, numbers, strings, None, and tuples/lists/dicts of such.
- `measure=`: `fn(result, case)`, computed here from what the code returned, before it is compared and shown.
  What is measured in `call` is measured where the student's code runs, which could change it. An exercise whose mark
  rests on that, or on `forbid=`, says so on its card (`Exercise.on_trust`).
- `compare`: `close(atol=, rtol=, dtype=True)`, `exact()`, or `fn(got, want, case) -> None | str`.
- `properties`: `(name, fn)`, `fn(got, case)` returns True if it holds (or None), False or a sentence if it is
  broken. Write the name so that it follows "This must hold and does not:".
- `forbid=("scaled_dot_product_attention",)`: names that the cell may not use (attributes included).
- `mutates=("cache",)`: arguments that the function is supposed to change in place.
- `limit=5`: seconds for all cases together.

## A number or a choice (`kind="predict"` or `"choose"`)

These need no Python:

    ["0.3"]
    title = "Every second float"
    kind = "predict"
    points = 1
    minutes = 3
    difficulty = 1
    card = "A warp reads `x[2 * i]`. How many sectors does the request move?"
    name = "sectors"
    answer = 8
    hints = ["A sector is 32 bytes.", "..."]
    misconceptions = [
      { value = 4, name = "counts only the bytes asked for", ask = "Can half a sector be moved?" },
    ]

For *choose*, `options.a = "text"`, `options.b = "text"`, and the answer is a key. The stub is `sectors = None`;
`tolerance` is absolute (`rtol` for a relative one). An answer that is computed is an argument of `exercise(...)` in
Python, with its `misconceptions`: there `answer` and `value` may be functions of nothing.

## A kernel

    kernel_exercise(
        id="0.2", cases=cases,                            # Case(x, y): plain CPU tensors and numbers
        launch=lambda x, y: Launch(grid=cdiv(len(x), 32), block=32, args=[x, y, out(x.shape), len(x)]),
        # PyTorch, independent of the kernel; a tuple for several outs
        expect=lambda x, y: x + y,
        compare=close(atol=1e-6),
        # moved bytes allowed (32 x sectors, loads + stores), or None
        traffic=lambda x, y: 12 * len(x))

Beside the words of an exercise in Python, the TOML has its `name`, and a `frame`: what stub and solution share, with
an `@` where the `stub` and the `solution` are put. `start=` is put before it: what several kernels begin with.

`out(shape, dtype=float32)` is a poisoned array that is compared; `scratch(shape, dtype)` is poisoned and not
compared. A tensor of the case that appears in `args` may be written only if it is wrapped: `inout(x)`.
`launch` may return a list of launches, each with `kernel=` when it is not `name`; the same `out`/`scratch`
object in two launches is the same array. The check runs sanitized, with guard bands, and counts; `traffic`
has a slack of 25 % and a few sectors for ragged ends. With `traffic`, `wavefronts=2` allows two wavefronts
per request of shared memory, averaged over the launch, and 0 no use of shared memory; `stored=` is a function
like `traffic` for the bytes that all lanes together may ask to write. A `TensorMap(x, box, swizzle)` of an
array may be an argument. `orders=("late", "early")` sanitizes each case in both.

## In the notebook

`cells("1.2")` returns the three cells (card, stub, check) as the notebook must hold them. Nobody types them.
"""

from .judging.compare import close, exact
from .declare import CHAPTERS, all_exercises, chapter_of, exercise, find, kernel_exercise
from .draws import randn, whole
from .notebook import cells
from .parts import Case, Exercise, Launch, Misconception, TensorMap, inout, out, scratch
from .student import check, hint, progress, reset, reveal, show_source
from .judging.film import film
from .judging.trace_back import why

__all__ = ["check", "film", "hint", "progress", "reset", "reveal", "show_source", "why", "cells", "CHAPTERS",
           "Case", "Exercise", "Launch", "Misconception", "TensorMap", "all_exercises", "chapter_of", "close",
           "exact", "exercise", "find", "inout", "kernel_exercise", "out", "randn", "scratch", "whole"]
