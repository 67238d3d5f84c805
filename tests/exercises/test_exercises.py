"""Every declared exercise, one by one; then the framework with everything a student may do to it."""
import ast
import importlib
import os
import random
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.exercises import CHAPTERS, Case, Misconception, all_exercises, cells, close, exercise, find
from course_lib.exercises.judging import judge as core
from course_lib.exercises.running import kernel_runner, runner
from course_lib.exercises import declare, marks, student
from course_lib.exercises.declare import KINDS, declared, load_chapter
from course_lib.exercises.parts import MISSING
from course_lib.exercises.notebook import card, check_line
from course_lib.exercises.judging.compare import exact, number
from course_lib.exercises.judging.counting import over_counts, used
from course_lib.exercises.judging.recognise import recognise
from course_lib.exercises.running.limits import TimeIsUp, time_limit
from course_lib.exercises.running.results import Outcome
from course_lib.exercises.judging.screen import normal
from course_lib.exercises.judging.show import show
from course_lib.exercises.shipped import LABEL, SILENT, as_shipped
from course_lib.exercises.running.values import same
from course_lib.exercises.judging.verdict import MIME, NOT_ATTEMPTED, NOT_RUN, PASSED, WRONG
from course_lib.exercises.judging.wording import picture
from course_lib.teaching.solve import answered, right_answer, verdicts, wrong_answer
from course_lib.tools.notebooks import chapter_notebooks, exercise_of
from notebook_process import execute

EXERCISES = [e for e in all_exercises() if e.module.startswith("course_lib.")]


def evaluate(ex, source, seed=0):
    verdict = core.evaluate(ex, source, seed)
    if verdict.status == NOT_RUN:
        pytest.skip(f"not run: {verdict.headline}")
    return verdict


class Work:
    """An exercise, and what several tests need of it, made once: cases, runs of texts, expected values."""

    def __init__(self, ex):
        self.ex, self.cases = ex, core.draw(ex)
        self.request, self._runs = core.request(ex, self.cases), {}

    def run(self, source):
        """The run of a text on the cases; without a compiler the test is not run."""
        if source not in self._runs:
            self._runs[source] = runner.run(self.request, source)
        failure = self._runs[source].failure
        if failure and failure.kind == "missing":
            pytest.skip(f"not run: {failure.message}")
        return self._runs[source]

    @cached_property
    def expected(self):
        if self.ex.expect is not None:
            return core.expected(self.ex, self.cases)
        return [outcome.value for outcome in self.run(self.ex.solution).outcomes]

    def verdict(self, source, misconceptions=(), run=None):
        oracle = core.Oracle(self.expected, list(misconceptions))
        return (core.screen(self.ex, source)
                or core.judge(self.ex, self.cases, run or self.run(source), source, 0, oracle))


@pytest.fixture(scope="module", params=EXERCISES, ids=lambda ex: ex.id)
def each(request):
    """Every exercise; of a module's scope, so that one's tests run together and share its runs."""
    return Work(request.param)


def test_stub_is_not_attempted(each):
    ex = each.ex
    assert evaluate(ex, ex.stub).status == NOT_ATTEMPTED
    assert evaluate(ex, ex.cell(ex.stub).removeprefix("%%cuda\n")).status == NOT_ATTEMPTED


def test_an_untouched_kernel_to_repair_shows_what_the_sanitizer_says(each):
    ex, told = each.ex, as_shipped(each.ex)
    if ex.kind != "repair" or ex.language != "cuda":
        assert told == []
        return
    again = runner.run(core.request(ex, core.draw(ex, 1), 1), ex.stub)
    outcomes = each.run(ex.stub).outcomes + again.outcomes
    kinds = {outcome.failure.kind for outcome in outcomes if outcome.failure}
    [(label, said)] = told
    assert label == LABEL and (said.split(":")[0] in kinds if kinds else said == SILENT)


def test_solution_passes_in_time_and_whatever_is_drawn(each):
    ex = each.ex
    each.verdict(ex.solution)               # torch's own first-use imports are not the exercise's
    start = sum(os.times()[:4])             # the children's too
    verdict = evaluate(ex, ex.cell(ex.solution).removeprefix("%%cuda\n"))
    assert verdict.status == PASSED, str(verdict)
    assert verdict.points == ex.points
    assert sum(os.times()[:4]) - start < (5 if ex.language == "cuda" else 2)
    for verdict in (evaluate(ex, ex.solution, seed) for seed in (1, 2)):
        assert verdict.status == PASSED, str(verdict)


def test_every_misconception_is_wrong_and_named(each):
    ex = each.ex
    sources = [ex.wrong_code(m) for m in ex.misconceptions]
    known = [(m.name, m.ask, each.run(source)) for m, source in zip(ex.misconceptions, sources)]
    for source, (name, ask, run) in zip(sources, known):
        verdict = each.verdict(source, known)
        assert verdict.status == WRONG, name
        assert verdict.misconception == name, str(verdict)
        assert verdict.ask == ask
        in_a_handout = recognise(ex, each.cases, run, "", known)      # it has outcomes, not the text of a mistake
        assert in_a_handout and in_a_handout[0] == name, f"{name!r} gives what {in_a_handout} gives"
        assert name in str(verdict) and ask in str(verdict)


def test_cheap_answers_are_wrong(each):
    """An empty function, a constant, the input itself."""
    ex = each.ex
    for source in cheap(ex):
        verdict = each.verdict(source)
        empty_stub = (ex.language == "cuda" and verdict.status == NOT_ATTEMPTED
                      and normal(ex, source) == normal(ex, ex.stub))
        assert verdict.status == WRONG or empty_stub, f"{source}\n{verdict}"


def cheap(ex):
    if ex.language == "cuda":
        head = re.search(rf"\A.*?__global__[^{{;]*\b{ex.name}\s*\([^)]*\)\s*", ex.stub, re.S)[0]
        yield head + "{}\n"
        return
    if ex.kind in ("predict", "choose"):
        for value in ("'?'", "-12345", "True", "[]", "float('nan')"):
            if value != repr(ex.answer):
                yield f"{ex.name} = {value}\n"
        return
    for node in ast.parse(ex.stub).body:
        if getattr(node, "name", None) != ex.name:
            continue
        if isinstance(node, ast.ClassDef):
            yield f"class {ex.name}:\n    pass\n"
            yield f"class {ex.name}:\n    def __init__(self, *args, **kwargs):\n        pass\n"
            continue
        first = (node.args.posonlyargs + node.args.args)[0].arg if node.args.args else "None"
        for body in ("pass", "return 0", "return torch_zero", f"return {first}"):
            yield f"torch_zero = __import__('torch').zeros(1)\ndef {ex.name}({ast.unparse(node.args)}):\n    {body}\n"


def test_one_wrong_element_dtype_or_shape_fails(each):
    ex = each.ex
    if ex.kind in ("predict", "choose"):
        pytest.skip("a typed answer has no elements")
    run = each.run(ex.solution)
    assert each.verdict(ex.solution).status == PASSED
    spoiled = 0
    for index, (case, outcome) in enumerate(zip(each.cases, run.outcomes)):
        for harm, harmed in HARMS.items():
            value = spoil(outcome.value, harmed)
            if value is None:
                continue
            if ex.differs(value, outcome.value, case) is None:
                if ex.measure:
                    continue        # what is measured is the same: float64, or the weight of a single key
                assert harm == "dtype", f"{harm} of case {index}"
                value = spoil(outcome.value, kind)                      # declared with dtype="kind"
            hurt = replace(run, outcomes=list(run.outcomes))
            hurt.outcomes[index] = replace(outcome, value=value)
            assert each.verdict(ex.solution, run=hurt).status == WRONG, f"{harm} of case {index}"
            spoiled += 1
    assert spoiled


def spoil(value, harm):
    """The value with its first tensor or number harmed; None if there is nothing to harm."""
    if not isinstance(value, (tuple, list, dict)):
        return harm(value)
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        hurt = spoil(part, harm)
        if hurt is not None:
            return ({**value, key: hurt} if isinstance(value, dict)
                    else type(value)([*value[:key], hurt, *value[key + 1:]]))
    return None


def element(value):
    if isinstance(value, torch.Tensor) and value.numel():
        hurt = value.clone().reshape(-1)
        last = hurt[-1].item()
        hurt[-1] = ((not last) if value.dtype == torch.bool else 1.0 if last in (float("inf"), -float("inf"))
                    or last != last else last + 1)
        return hurt.reshape(value.shape)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return value + "?" if isinstance(value, str) else None


def of_tensor(change):
    return lambda value: change(value) if isinstance(value, torch.Tensor) else None


kind = of_tensor(lambda x: x.long() if x.is_floating_point() else x.double())
HARMS = {"element": element, "dtype": of_tensor(lambda x: x.double() if x.dtype != torch.float64 else x.float()),
         "shape": of_tensor(lambda x: x.unsqueeze(0))}


def test_declaration_is_whole(each):
    ex = each.ex
    assert ex.id.split(".")[0] == str(CHAPTERS.index(ex.module.rpartition(".")[2]))
    assert 1 <= ex.difficulty <= 5 and ex.minutes > 0 and ex.points > 0
    names = [m.name for m in ex.misconceptions]
    assert len(set(names)) == len(names) >= 2 and len(ex.hints) >= 2
    assert all("?" in m.ask for m in ex.misconceptions), "the question that leads on"
    assert ex.kind not in ("predict", "choose") or ex.answer is not MISSING
    typed = [m.value for m in ex.misconceptions if type(m.value) in (int, float) and abs(m.value) > 5]
    assert all(ex.differs(1.1 * value, value, None) for value in typed), "a mistake is not named by a number near it"
    text = card(ex)
    assert ex.kind in text and f"{ex.minutes:g} minutes" in text and text.count("<details>") == len(ex.hints)
    assert len(each.cases) >= (1 if ex.cases is None else 3)
    how = ex.language == "python" and bool(ex.forbid or "Watch" in (ex.call or "") or "NeverRead" in (ex.call or ""))
    assert ("no guard against tricks" in text) == how, "what is checked on trust says so"
    made = cells(ex.id)
    assert made[0]["source"].startswith(f"### Exercise {ex.id} · ")
    assert made[1]["source"].splitlines()[ex.language == "cuda"] == ex.marker
    assert made[2]["source"] == check_line(ex) == f'{ex.name} = check("{ex.id}", {ex.name})'
    lines = [line.strip() for line in ex.solution.splitlines()
             if len(line.strip()) > 24 and line not in ex.stub]
    assert not any(line in text.split("<details>")[0] for line in lines), "the card gives the solution away"


def test_what_a_chapters_data_describes_and_no_module_declares_is_refused(monkeypatch):
    monkeypatch.setattr(declare, "words", lambda word: {"0.98": {"title": "Without cases", "kind": "write"}})
    with pytest.raises(ValueError, match="0.98: start_here.toml describes it, and start_here.py does not declare it"):
        declare._ask.__wrapped__("start_here", "course_lib.exercises.chapters.start_here")


def test_cases_are_the_same_for_a_seed_and_others_for_another(each):
    """Or a table of the cases in a handout would be a solution."""
    if each.ex.cases is not None:
        drawn = [[(c.args, c.kwargs) for c in core.draw(each.ex, seed)] for seed in (3, 3, 4)]
        assert all(map(same, drawn[0], drawn[1])) and not all(map(same, drawn[0], drawn[2]))
        assert len(drawn[0]) == len(drawn[2])
        assert core.request(each.ex, each.cases, 3).seed not in (0, 3), "a run could tell all cases from it"


MUTANTS, CUDA_MUTANTS = 40, 12


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CHAPTERS)), ids=CHAPTERS)
def test_mutants_of_solutions_are_rejected(number, monkeypatch):
    """Small changes of a solution that change what it gives on other inputs are wrong on the check's own."""
    changing, survivors = 0, []
    for ex in EXERCISES:
        if not ex.id.startswith(f"{number}.") or ex.kind in ("predict", "choose"):
            continue
        made = list((cuda_mutants if ex.language == "cuda" else python_mutants)(ex.solution))
        random.Random(ex.id).shuffle(made)
        own, *probes = [(cases := core.draw(ex, seed), core.Oracle(core.expected(ex, cases, seed), []), seed)
                        for seed in (0, 11, 12, 13)]
        made = made[:CUDA_MUTANTS if ex.language == "cuda" else MUTANTS]
        if ex.language == "cuda":
            monkeypatch.setattr(kernel_runner, "compiled", Together([source for _, source in made]))
        for what, source in made:
            rejected = judge(ex, *own, source) != PASSED
            if rejected or any(judge(ex, *probe, source) != PASSED for probe in probes):
                changing += 1
                survivors += [] if rejected else [f"{ex.id}: {what}"]
    if not changing:
        pytest.skip("no exercises to write in this chapter")
    assert len(survivors) <= 0.05 * changing, (f"{len(survivors)} of {changing} got through:\n"
                                               + "\n".join(survivors))


class Together:
    """Kernels compiled as one file, each in a namespace of its own, in place of `kernel_runner.compiled`.
    Without those that no compiler takes, and with others, it does as that does."""

    def __init__(self, sources):
        self.sources, self.alone, self.module = sources, kernel_runner.compiled, None

    def __call__(self, cuda, source):
        if self.module is None:
            self.module = self._built(cuda)
        if source not in self.sources:
            return self.alone(cuda, source)
        name = f"mutant{self.sources.index(source)}::"
        kernels = {k.removeprefix(name): self.module[k] for k in self.module.kernels if k.startswith(name)}
        return (SimpleNamespace(kernels=list(kernels), builds=self.module.builds, **kernels) if kernels
                else self.alone(cuda, source))

    def _built(self, cuda):
        include = re.compile(r"^#include.*", re.M)
        heads = sorted({line for source in self.sources for line in include.findall(source)})
        kept = {n: include.sub("", source) for n, source in enumerate(self.sources)}
        while True:
            parts = [f"namespace mutant{n} {{\n{source}\n}}" for n, source in kept.items()]
            ends = dict(zip(kept, accumulate([len(heads) + parts[0].count("\n") + 1,
                                              *(part.count("\n") + 1 for part in parts[1:])])))
            try:
                return cuda.compile("\n".join(heads + parts), "<cell>")
            except cuda.CompileError as error:
                bad = {next(n for n, end in ends.items() if line <= end) for line, _ in error.errors if line}
                assert bad, error
                kept = {n: source for n, source in kept.items() if n not in bad}


def judge(ex, cases, oracle, seed, source):
    request = replace(core.request(ex, cases, seed), limit=2.0)
    return core.judge(ex, cases, runner.run(request, source), source, seed, oracle).status


SWAP = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
        ast.Mod: ast.FloorDiv, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
        ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr,
        ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult}


def python_mutants(source):
    """(what, text): an operator, a constant, an axis or a bound changed, one at a time."""
    tree = ast.parse(source)
    docs = {id(n.body[0].value) for n in ast.walk(tree)
            if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module)) and n.body
            and isinstance(n.body[0], ast.Expr)}
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAP:
            what, field, value = type(node.op).__name__, "op", SWAP[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAP:
            what, field = type(node.ops[0]).__name__, "ops"
            value = [SWAP[type(node.ops[0])](), *node.ops[1:]]
        elif (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
              and isinstance(node.operand, ast.Constant)):
            what, field, value = f"-{node.operand.value}", "op", ast.UAdd()
        elif isinstance(node, ast.Constant) and id(node) not in docs and isinstance(node.value, (int, float)):
            what, field = f"{node.value}", "value"
            value = not node.value if isinstance(node.value, bool) else node.value + 1
        else:
            continue
        copy = deepcopy(tree)
        setattr(list(ast.walk(copy))[number], field, value)
        yield f"line {getattr(node, 'lineno', '?')}: {what}", ast.unparse(copy)


def cuda_mutants(source):
    swaps = [(r"(?<![<-])<(?![<=])(?= )", "<="), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "),
             (r"&&", "||"), (r"\+= ", "-= "), (r"(?<=[ (])16\b", "8"), (r"\b0\.0f", "1.0f"),
             (r"= 0;", "= 1;"), (r"__syncthreads\(\);", ""), (r"> 0;", "> 1;"),
             (r"\bthreadIdx\.x", "threadIdx.y"), (r"\bfmaxf", "fminf"), (r"\bty\b", "tx"), (r" % ", " / "),
             (r" / ", " * ")]
    begin = source.index("{", source.index("__global__"))
    for pattern, text in swaps:
        for match in re.finditer(pattern, source):
            if match.start() > begin:
                line = source[:match.start()].count("\n") + 1
                yield f"line {line}: {match[0]!r} -> {text!r}", source[:match.start()] + text + source[
                    match.end():]


def softmax_cases(rng):
    for n, d in [(2, 3), (1, 1), (5, 8), (7, 33)]:
        yield Case(torch.randn(n, d, generator=rng) * 3, label=f"{n} rows of {d}")
    yield Case(torch.tensor([[1000.0, 1001.0]]), label="large scores")


@pytest.fixture
def ex():
    """An exercise that no chapter has."""
    made = exercise(id="10.99", title="A softmax", kind="write", points=2, minutes=8, difficulty=2,
                    card="Write it.", given={"torch": torch}, forbid=("log_softmax",), limit=1.0,
                    solution='def softmax(x):\n    """(n, d) -> (n, d)"""\n    e = (x - x.amax(-1, keepdim=True)).exp()\n'
                    "    return e / e.sum(-1, keepdim=True)\n", cases=softmax_cases, compare=close(atol=1e-5),
                    properties=[("each row sums to 1", lambda got, case: (got.sum(-1) - 1).abs().max()
                                 < 1e-4)],
                    misconceptions=[Misconception("sums over the wrong axis", change=("sum(-1", "sum(0"),
                                                  ask="One row, or one column?"),
                                    Misconception("forgets to subtract the maximum",
                                                  change=(" - x.amax(-1, keepdim=True)", ""),
                                                  ask="What is exp(1000)?")], hints=["a", "b"])
    yield made
    del declared["10.99"]


BAD = {
    "def softmax(x):\n    return x": "The result at [0, 0]",
    "def softmax(x):\n    return None": "Does every path reach a `return`?",
    "def softmax(x):\n    return 'no'": "the string 'no', not a tensor",
    "def softmax(x):\n    return x.numpy()": "NumPy",
    "def softmax(x):\n    return torch.softmax(x, 1).long()": "has dtype int64, expected float32",
    "def softmax(x):\n    return torch.softmax(x, 1).T": "has shape (3, 2), expected (2, 3)",
    "def softmax(x):\n    return torch.softmax(x, 1)[None]": "a dimension of size 1 too many",
    "def softmax(x):\n    return (torch.softmax(x, 1), x)": "a tuple, not a tensor",
    "def softmax(x):\n    yield x": "Use `return`, not `yield`",
    "async def softmax(x):\n    return x": "coroutine",
    "def softmax(x):\n    return softmax": "a function, not a tensor",
    "def softmax(x, y):\n    return x": "`softmax(x)`",
    "def softmax():\n    return 1": "`softmax(x)`",
    "def softmax(x):\n    return x[10]": "raises IndexError",
    "def softmax(x):\n    raise SystemExit": "tries to stop",
    "def softmax(x):\n    return softmax(x)": "RecursionError",
    "def softmax(x):\n    return missing + x": "`missing` is not defined inside this cell",
    "def softmax(x):\n    return np.exp(x)": "gives you: `torch`",
    "def softmax(x):\nreturn x": "cannot read the cell",
    "softmax = 3": "`softmax` is an int, not a function",
    "class softmax:\n    pass": "not a function",
    "def soft_max(x):\n    return x": "The cell does not define `softmax`",
    "%timeit 1\ndef softmax(x): return x": "notebook command",
    "def softmax(x):\n    while True:\n        pass": "did not finish within 0.2 seconds",
    "while True:\n    pass": "did not finish within 0.2 seconds",
    "def softmax(x):\n    while True:\n        try:\n            x = x + 1\n        except Exception:\n            pass": "did not finish",
    "def softmax(x):\n    y = torch.softmax(x, 1)\n    x.zero_()\n    return y": "changes its input `x` in place",
    "def softmax(x):\n    return torch.log_softmax(x, 1).exp()": "`log_softmax` may not be used",
    "def softmax(x):\n    return getattr(torch, 'log_softmax')(x, 1).exp()": "calls `log_softmax`, which may not be used here",
    "def softmax(x):\n    return torch.softmax(x, 1).to_sparse()": "a sparse_coo tensor, not a plain tensor",
    "def softmax(x):\n    return torch.nested.nested_tensor([x])": "a nested tensor, not a plain tensor",
    "def softmax(x):\n    return x.to('meta')": "a meta tensor, not a plain tensor",
    "def softmax(x):\n    return 10 ** 5000": "the integer 10**5000 or so, not a tensor",
    "\x00": "cannot read the cell",
    "def softmax(x):\n    raise ValueError('<script>alert(1)</script>')": "raises ValueError: <script>",
    "raise ValueError('top')\ndef softmax(x): return x": "raises ValueError: top",
    "def softmax(x):\n    return torch.softmax(x, 0)": "sums to 1",
    "def softmax(x):\n    return type('T', (), {})()": "not a tensor",
    "def softmax(x):\n    return torch.softmax(x, 1) + 1e-3": "each row sums to 1"}


@pytest.mark.parametrize("source", BAD, ids=range(len(BAD)))
def test_a_bad_attempt_gets_a_sentence(ex, source):
    if "while" in source:
        ex.limit = 0.2
    verdict = core.evaluate(ex, source)
    said = str(verdict)
    assert verdict.status == WRONG, said
    assert BAD[source] in said
    assert "<script>" not in verdict._repr_html_()
    assert "Traceback" not in said and "course_lib" not in said and not re.search(r"0x[0-9a-f]{6}", said)


def test_a_student_may_import_help_print_and_return_a_view(ex):
    helped = "import math\ndef helper(x):\n    return x.exp()\n" + ex.solution.replace(
        "def softmax(x):\n", "def softmax(x):\n    print('here', x.shape)\n")
    assert core.evaluate(ex, helped).status == PASSED
    view = core.evaluate(find("1.7"), find("1.7").solution)
    assert view.status == PASSED and "shares memory with `x`" in str(view)


def test_the_line_is_the_students_own(ex):
    verdict = core.evaluate(ex, "# EXERCISE 10.99\ndef softmax(x):\n    y = x.exp()\n    return "
                            "y.reshape(1000)\n")
    assert verdict.details[0] == ("Line 4", "return y.reshape(1000)")


def test_nan_is_traced_to_the_operation_that_made_it(ex):
    verdict = core.evaluate(ex, "def softmax(x):\n    y = (x - x).log() * 0\n    return y + 1\n")
    assert ("The first NaN", "comes out of `mul`, line 2: y = (x - x).log() * 0") in verdict.details


def test_what_the_code_prints_is_shown_and_cut(ex):
    verdict = core.evaluate(ex, "def softmax(x):\n    for i in range(99): print('line', i)\n    return x\n")
    assert dict(verdict.details)["Your code printed"].splitlines()[-1] == "..."


def test_checks_leave_random_numbers_and_threads_alone(ex):
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    core.evaluate(ex, ex.solution)
    core.evaluate(ex, "def softmax(x):\n    torch.manual_seed(1)\n    return x + torch.rand(1)\n")
    assert torch.equal(torch.rand(3), want)


def test_the_verdict_is_the_same_twice_in_text_html_and_data(ex):
    for source in [ex.stub, ex.solution, *map(ex.wrong_code, ex.misconceptions), *list(BAD)[:12]]:
        first, again = core.evaluate(ex, source), core.evaluate(ex, source)
        assert first._repr_mimebundle_() == again._repr_mimebundle_()
        assert set(first._repr_mimebundle_()) == {"text/plain", "text/html", MIME}
        page = first._repr_html_()
        assert (first.status in page
                and not re.search(r"(?<!-)\bcolor:(?!inherit)|background:(?!transparent)", page))


@pytest.mark.parametrize("id", ["1.999", "99.1", "x", "", 3.2, None, "3", "../1.1"])
def test_an_unknown_id_is_a_sentence(id, capsys):
    sentinel = object()
    assert student.check(id, sentinel) is sentinel
    student.hint(id), student.reveal(id), student.reset(id)
    said = capsys.readouterr().out
    assert said.count("not run") >= 3 and "Traceback" not in said


def test_declarations_that_cannot_be_meant_are_refused():
    plain = dict(id="10.97", title="t", kind="write", points=1, minutes=1, difficulty=1, card="",
                 hints=["a", "b"], stub="def f(x): ...", solution="def f(x):\n    return x",
                 cases=softmax_cases)
    two = [Misconception("a", "a?", change=("x", "y")), Misconception("b", "b?", value=1)]
    for change, told in [({"kind": "wrote"}, "kind"), ({"hints": ["a"]}, "two hints"), ({"id": "ten"}, "id"),
                         ({"difficulty": 9}, "difficulty"),
                         ({"misconceptions": [Misconception("a", "?", change=("nothing", "y")), two[1]]},
                          "does not contain"),
                         ({"misconceptions": [Misconception("a", "?"), two[1]]}, "one of code="),
                         ({"solution": None}, "solution="), ({"kind": "predict"}, "answer="),
                         ({"kind": "choose", "answer": "c", "name": "n", "options": {"a": ""}}, "options=")]:
        with pytest.raises(ValueError, match=told):
            exercise(**{**plain, "misconceptions": two, **change})
    assert "10.97" not in declared
    with pytest.raises(ValueError, match="twice"):
        exercise(**{**plain, "id": EXERCISES[0].id, "misconceptions": two})


ADD = find("0.2").solution
BAD_KERNELS = {
    ADD.replace(";", "", 1): "does not compile",
    ADD.replace("add(", "plus("): "defines no kernel `add`",
    ADD.replace("__global__ ", ""): "defines no kernel `add`",
    ADD.replace("int n", "int n, int m"): "cannot launch your kernel",
    ADD.replace("out[i] =", "out[i + 1] ="): "out of bounds",
    ADD.replace("x[i] +", "out[i] +"): "uninitialized",
    ADD.replace("if (i", "while (i"): "timeout",
    ADD.replace("x[i] + y[i]", "*(float*)0"): "out of bounds",
    ADD.replace("x[i] + y[i]", "1 / (n - n)"): "division by zero",
    ADD.replace("if (i < n)", "if (i < n && i % 2)"): "Never written: 3 of 5 elements, the first at [0]",
    ADD.replace("out[i] =", "((float*)x)[i] = out[i] ="): "changes its input",
    ADD.replace("x[i] + y[i]", "x[i] - y[i]"): "The result at [0]",
    "#include <no_such_header.h>\n" + ADD: "may not be used in an exercise",
    ADD.replace("x[i] +", "x[i] + x[(i * 32) % n] - x[(i * 32) % n] +"): "times the bytes it must"}


@pytest.mark.parametrize("source", BAD_KERNELS, ids=range(len(BAD_KERNELS)))
def test_a_bad_kernel_gets_a_sentence(source, monkeypatch):
    monkeypatch.setattr(kernel_runner, "STEPS", 100_000)         # an endless loop ends sooner
    verdict = evaluate(find("0.2"), source)
    assert verdict.status == WRONG
    assert BAD_KERNELS[source] in str(verdict), str(verdict)
    assert "Traceback" not in str(verdict) and ".build" not in str(verdict)


def test_a_kernel_over_its_budget_is_shown_its_accesses():
    ex = find("0.2")
    verdict = evaluate(ex, ex.wrong_code(ex.misconceptions[-1]))
    assert "times the bytes" in dict(verdict.details)["Traffic"]
    assert verdict.picture.startswith("<figure") and "line 4, load" in verdict.picture


def test_a_forged_picture_is_harmless():
    forged = {"name": "<script>x", "itemsize": 4, "of": 1, "lines": [3],
              "requests": [{"offset": [0, 4], "size": 4, "operation": 0, "memory": "<script>"}]}
    assert "<script" not in picture(Outcome(counts={"picture": forged}))


@pytest.fixture
def at_home(monkeypatch, tmp_path):
    """As if a person sat there, with a file of marks of their own."""
    monkeypatch.setattr(marks, "interactive", lambda: True)
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


def test_marks_survive_and_a_pass_is_kept(at_home):
    marks.update("1.1", status=WRONG)
    marks.update("1.1", status=PASSED)
    marks.update("1.1", status=NOT_ATTEMPTED)
    marks.update("1.2", hints=2)
    assert marks.read()["1.1"]["status"] == PASSED and marks.read()["1.2"]["hints"] == 2
    marks.forget("1.1")
    assert marks.read()["1.1"]["status"] == NOT_ATTEMPTED


def test_two_notebooks_at_once_lose_nothing(at_home, monkeypatch):
    """The second begins when the first has read the file and not yet written it."""
    load = marks.load
    second = threading.Thread(target=marks.update, args=("1.2",), kwargs={"status": PASSED})

    def loaded(path):
        found = load(path)
        if not second.ident:
            second.start()
            second.join(1)                               # it waits for the first, or is done by now
        return found
    monkeypatch.setattr(marks, "load", loaded)
    marks.update("1.1", status=PASSED)
    second.join()
    assert set(marks.read()) == {"1.1", "1.2"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"1.1": 3}', "\x00"])
def test_a_broken_file_of_marks_is_set_aside(at_home, text):
    at_home.write_text(text)
    marks.update("1.1", status=PASSED)
    assert marks.read()["1.1"]["status"] == PASSED


def test_marks_without_a_place_to_write_are_kept_in_memory(monkeypatch):
    monkeypatch.setattr(marks, "interactive", lambda: True)
    monkeypatch.setenv("COURSE_PROGRESS", "/proc/nowhere/progress.json")
    monkeypatch.setattr(marks, "_memory", {})
    assert marks.update("1.1", status=PASSED)["status"] == PASSED


def test_marks_of_a_page_are_added_and_lose_nothing(at_home, tmp_path):
    marks.update("0.2", status=PASSED, hints=1)
    file = tmp_path / "marks.json"
    file.write_text('{"0.2": {"status": "wrong", "hints": 0, "revealed": true}, "0.4": {"status": "passed", "hints": 0, "revealed": false}}')
    student.progress(marks_of=file)
    assert marks.read()["0.2"] == {"status": PASSED, "hints": 1, "revealed": True} and marks.read()["0.4"]["status"] == PASSED


def test_progress_tells_what_is_next(at_home):
    assert "Next: exercise 0.1" in str(student.progress(0))
    marks.update("0.1", status=PASSED)
    table = student.progress(0)
    assert "✓ 0.1" in str(table) and "Next: exercise 0.2" in str(table) and "1 of 6" in table._repr_html_()
    assert len(str(student.progress()).splitlines()) > 2
    with pytest.raises(ValueError, match="no chapter"):
        student.progress("nowhere")
    with pytest.raises(ValueError, match="no chapter"):
        student.progress(99)


def mix(weights, values):
    return weights @ values


def test_a_function_of_a_script_is_checked_too(capsys):
    assert student.check("0.1", mix) is mix
    assert capsys.readouterr().out.startswith("✓ passed")
    assert student.check("0.1", lambda weights, values: values) is not mix
    assert capsys.readouterr().out.startswith("✗ wrong")


def test_hints_come_one_by_one(at_home, capsys):
    ex = find("0.1")
    for n in range(1, len(ex.hints) + 2):
        student.hint("0.1")
        shown = capsys.readouterr().out
        assert sum(hint in shown for hint in ex.hints) == min(n, len(ex.hints))
    assert "reveal" in shown
    student.reveal("0.1")
    assert ex.solution.strip() in capsys.readouterr().out and marks.read()["0.1"]["revealed"]
    student.reset("0.1")
    marks.update("0.1", status=marks.PASSED)
    student.reveal("0.1")
    assert not marks.read()["0.1"]["revealed"]             # who compares afterwards has not looked it up


def run_cells(tmp_path, *sources):
    """What each cell after the imports gives."""
    book = new_notebook(cells=[new_code_cell("import torch\nfrom course_lib.exercises import *"),
                               *map(new_code_cell, sources)])
    execute(book, tmp_path / "try.ipynb")
    return [[said(o) for o in cell.outputs] for cell in book.cells[1:]]


def said(output):
    if output.output_type in ("stream", "error"):
        return output.get("text") or output.evalue
    return output.data.get(MIME) or output.data["text/plain"]


def test_a_student_works_through_an_exercise(tmp_path):
    ex = find("0.1")
    check, right = 'mix = check("0.1", mix)', ex.solution.replace("(weights[:, None] * values).sum(0)",
                                                                  "weights @ values")
    use = "print(mix(torch.ones(2), torch.ones(2, 3)))"
    results = run_cells(
        tmp_path, ex.cell(ex.stub), check, use,                                        # the reference works
        check,                                             # checked again: the reference is no answer
        ex.cell(ex.wrong_code(ex.misconceptions[0])), check,                           # a known mistake
        check,                                                                         # and again
        right, ex.cell(ex.stub), right, check,                                         # work in another cell
        ex.cell(right), "mix = 3", check,                                              # the name means something else
        ex.cell(right), check, check,                                                  # right, twice
        ex.cell("helper = 2\n" + right.replace("weights @", "other * weights @")), "other = 1", check,
        "print(mix is not None)", 'hint("0.1")', "progress()", 'reset("0.1")')
    stub, used, again, known, known_again, elsewhere, stale, passed, passed_again, other = (
        results[i] for i in (1, 2, 3, 5, 6, 10, 13, 15, 16, 19))
    assert stub[0]["status"] == again[0]["status"] == NOT_ATTEMPTED
    assert used == ["tensor([2., 2., 2.])\n"]
    assert known[0]["misconception"] == known_again[0]["misconception"] == ex.misconceptions[0].name
    assert elsewhere[0]["status"] == WRONG and "another cell" in elsewhere[0]["headline"]
    assert stale[0]["status"] == WRONG and "is an integer now" in stale[0]["headline"]
    assert passed[0]["status"] == passed_again[0]["status"] == PASSED
    assert other[0]["status"] == WRONG and "`other` is not defined" in other[0]["headline"]
    assert "Hint 1" in results[21][0] and "1 of 6" in results[22][0] and "# EXERCISE 0.1" in results[23][0]


@pytest.mark.parametrize("id", ["0.3", "2.2"])
@pytest.mark.parametrize("typed", ["10 ** 400", "-10 ** 5000"])
def test_a_number_beyond_all_floats_is_an_answer_too(id, typed):
    verdict = core.evaluate(find(id), f"{find(id).name} = {typed}")
    assert verdict.status == WRONG and verdict.headline.endswith("or so is not the answer.")


def test_where_the_name_comes_from(tmp_path):
    """A decorator's wrapper is in a file of torch's; a kernel of another cell is told from the marked one."""
    ex, kernel = find("0.1"), find("0.2")
    results = run_cells(tmp_path, "from course_lib import cuda",
                        "# EXERCISE 0.1\n@torch.no_grad()\n" + ex.solution, 'mix = check("0.1", mix)',
                        kernel.cell(kernel.solution), "%%cuda\n" + kernel.solution, 'add = check("0.2", add)')
    assert results[2][0]["status"] == PASSED
    assert results[5][0]["status"] == WRONG and "another cell" in results[5][0]["headline"]


def test_a_typed_answer(tmp_path):
    check, typed = 'sectors = check("0.3", sectors)', ("None", "4", "'eight'", "2 ** 3")
    cells = [cell for answer in typed for cell in (f"# EXERCISE 0.3\nsectors = {answer}", check)]
    results = run_cells(tmp_path, *cells[:2], "print(sectors)", check, *cells[2:])
    assert [r[0]["status"] for r in results[1::2]] == [NOT_ATTEMPTED, NOT_ATTEMPTED, WRONG, WRONG, PASSED]
    assert results[2] == ["8\n"]


def executed(path, answer):
    """Exercises with an answer, their checks and what is imported. `check` returns what the other cells work with: as
    shipped they run under nbval, and with each solution in place of ours in its handout."""
    book = answered(path, answer)
    book.cells = [cell for cell in book.cells if cell.cell_type == "code"
                  and ([*exercise_of(cell)] or cell.source.startswith(("import ", "from ")))]
    execute(book, path)
    return book


@pytest.mark.slow
@pytest.mark.parametrize("path", chapter_notebooks(), ids=lambda p: p.stem)
def test_notebook_solved_passes_every_check(path):
    found = verdicts(executed(path, right_answer))
    assert [v["id"] for v in found if v["status"] != PASSED] == [] and found


@pytest.mark.slow
@pytest.mark.parametrize("path", chapter_notebooks(), ids=lambda p: p.stem)
def test_notebook_answered_by_misconceptions_has_no_traceback(path):
    book = executed(path, wrong_answer)
    assert {v["status"] for v in verdicts(book)} == {WRONG}
    assert not [o for cell in book.cells for o in cell.outputs if o.output_type == "error"]


@pytest.mark.parametrize("want", [float("inf"), -float("inf")])
def test_within_any_tolerance_of_infinity_only_infinity_is_right(want):
    for got in (0.0, -want, 1e30, float("nan")):
        assert (close(atol=1e9, rtol=1e9)(torch.tensor([1.0, got]), torch.tensor([1.0, want]))
                and close()(got, want))
        assert number(1e9, 1e9)(got, want)
    assert (close()(torch.tensor(want), torch.tensor(want)) is None and close()(want, want) is None
            and number()(want, want) is None)


def test_any_integers_may_do_where_the_card_says_integers():
    want = torch.tensor([1, 2])
    assert exact(dtype="kind")(want.int(), want) is None and exact()(want.int(), want)
    assert exact(dtype="kind")(want.float(), want) and exact(dtype="kind")(want.bool(), want)
    large = torch.tensor([2**53 + 1])
    assert exact()(large, large - 1) and exact()(large, large) is None


SOFTMAX = "def softmax(x, dim=-1):\n    e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)\n"
HIDES = "def softmax(x, dim=-1):\n    import torch.utils._python_dispatch as d\n    f = getattr(torch, 'soft' + 'max')\n"
FORBIDDEN = {
    "1.2 by getattr": "def softmax(x, dim=-1):\n    return getattr(torch, 'soft' + 'max')(x, dim)\n",
    "1.2 under no mode": HIDES + "    with d._disable_current_modes():\n        return f(x, dim)\n",
    "1.2 under a decorator": HIDES + "    return d._disable_current_modes()(f)(x, dim)\n",
    "1.2 under two guards": HIDES + "    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():\n        return list(map(f, [x], [dim]))[0]\n",
    "1.2 without a profiler": HIDES + "    __import__('sys').setprofile(None)\n    with d._disable_current_modes():\n        return f(x, dim)\n",
    "1.2 by exec": "exec('def softmax(x, dim=-1):\\n    return torch.softmax(x, dim)', globals())\n",
    "1.2 by a table made before": "soft = torch.jit.trace(lambda x: torch.softmax(x, 0), torch.ones(3))\ndef softmax(x, dim=-1):\n    return soft(x)\n",
    "9.11 by Python's numbers": "def squared_distances(q, k):\n    return (q - float(q[0, 0])) @ k.T\n",
    "1.2 masked": "def softmax(x, dim=-1):\n    return torch._masked_softmax(x, torch.zeros_like(x, dtype=torch.bool), dim, 2)\n",
    "1.2 by sums so far": "def softmax(x, dim=-1):\n    return (x - x.logcumsumexp(dim).narrow(dim, -1, 1)).exp()\n",
    "1.2 in a process": SOFTMAX.replace("\n", "\n    __import__('subprocess').run(['true'])\n", 1),
    "1.13 backward": "def softmax_backward(p, g):\n    return torch.func.vjp(lambda s: s.exp() / s.exp().sum(-1, keepdim=True), p.log())[1](g)[0]\n",
    "1.13 forward": "def softmax_backward(p, g):\n    return torch.func.jvp(lambda s: s.exp() / s.exp().sum(-1, keepdim=True), (p.log(),), (g,))[1]\n",
    "1.2 by a frame": SOFTMAX.replace("\n", "\n    __import__('sys')._getframe().f_back.f_locals\n", 1),
    "1.2 by an exception": SOFTMAX.replace("\n", "\n    type(RuntimeError().__traceback__).tb_frame\n", 1),
    "1.2 by a module": "import sys\nsys.modules['course_lib.exercises.running.runner'].calls = print\n" + SOFTMAX,
    "1.13 by gc": "import gc\ndef softmax_backward(p, g):\n    return gc.get_objects()[0]\n",
    "9.11 by bits": "def squared_distances(q, k):\n    return q @ k.T * int(q.view(torch.int32)[0, 0])\n",
    "9.1": "def w2_of_samples(*a):\n    return torch.cdist(*a)\n",
    "7.2 by a cache that grows": find("7.2").solution.replace(
        "self.k[:, here], self.v[:, here] = k, v", "self.k = torch.concatenate([self.k[:, :self.length], k], 1)\n"
        "        self.v = torch.concatenate([self.v[:, :self.length], v], 1)")}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_is_forbidden_is_found_by_what_is_called(name):
    verdict = core.evaluate(find(name.split()[0]), FORBIDDEN[name], 3)
    said = ("may not be used here", "switches off", "starts a thread or a process", "reaches into the process",
            "copies the cache")
    assert verdict.status == WRONG and any(words in verdict.headline for words in said), str(verdict)


@pytest.mark.parametrize("run", [lambda work: work(), lambda work: ThreadPoolExecutor().submit(work).result()],
                         ids=["here", "aside"])
def test_an_import_comes_to_its_end_before_the_time_is_up(run, tmp_path, monkeypatch):
    """torch.func brings in modules for seconds: interrupted, they would stay broken for all that follows."""
    (tmp_path / "slow.py").write_text("import time\nfor _ in range(30):\n    time.sleep(0.01)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow", raising=False)

    def work():
        with pytest.raises(TimeIsUp), time_limit(0.1):
            assert importlib.import_module("slow").whole
            while True:
                pass
    run(work)


def test_a_property_is_not_asked_of_a_value_of_another_shape():
    """7.10's would multiply a row by a column: 28 GB from an answer of half a megabyte."""
    n = 200_000
    source = f"def quantize(x, bits, dim):\n    return torch.zeros({n}, 1), torch.zeros(1, {n}), torch.zeros(1, {n})\n"
    assert core.evaluate(find("7.10"), source, 3).status == WRONG


OWN_TESTS = "x = torch.randn(2, 3)\nassert torch.allclose(softmax(x), torch.softmax(x, -1))\nprint(softmax(x) - x.softmax(-1))\n"
OWN_TESTS += "def test():\n    x = torch.softmax(torch.ones(3), 0)\ntest()\nfor dim in (0, 1):\n    x = x.softmax(dim)\n"
PRINTS = "    print(x, str(x), {'softmax': vars(torch), 'cat': getattr(x, 'shape')})\n    with torch.no_grad():\n        x = torch.vmap(lambda r: r + 0)(x)\n"
ATTEND_IN_PLACE = """def attend_once(q, pairs, scale):
    m, total, o = torch.tensor(-torch.inf), torch.zeros(()), None
    for key, value in pairs:
        s = (q * key).sum() * scale
        new = torch.maximum(m, s)
        o = torch.zeros_like(value) if o is None else o
        total.mul_((m - new).exp()).add_((s - new).exp())
        o.mul_((m - new).exp()).add_((s - new).exp() * value)
        m = new
    return o / total
"""
ATTEND_LISTED = """def attend_blocks(q, k, v, visits, block):
    parts = []
    for Q, row in zip(q.double().split(block), visits):
        out, total = torch.zeros(len(Q), v.shape[1]).double(), torch.full((len(Q), 1), -torch.inf).double()
        for c in reversed(row):
            s = torch.einsum("md,nd->nm", k[c * block:][:block].double(), Q) * q.shape[1] ** -0.5
            both = torch.logaddexp(total, s.logsumexp(1, keepdim=True))
            out = out * (total - both).exp() + (s - both).exp() @ v[c * block:][:block].double()
            total = both
        parts.append(out)
    return torch.cat(parts).float()
"""
RIGHT = {        # forbidden names that are one's own, in tests or in a text; ways that are not the solution's
    "1.2 by a name of one's own, with tests": "softmax = lambda x, dim=-1: (x - x.amax(dim, keepdim=True)).exp() / (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True)\n" + OWN_TESTS,
    "1.2 with a print, for which torch switches its own modes off": SOFTMAX.replace("\n", "\n" + PRINTS, 1),
    "3.4 with names of one's own": "tile = 4\nexpand = 2\n" + find("3.4").solution,
    "9.11 with names of one's own": "norm = 1\ndouble = 2\n" + find("9.11").solution,
    "7.2 with a list": "class Helper:\n    def __init__(self):\n        self.stack = []\n        self.stack.append(1)\nHelper()\n" + find("7.2").solution,
    "6.4 with a softmax of one's own": "def softmax(scores):\n    return scores\n" + find("6.4").solution,
    "1.5 beside a reference": "def reference(q, k, v):\n    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
                              "want = reference(*torch.randn(3, 2, 4))\nprint(want)\n" + find("1.5").solution,
    "6.2 in place": ATTEND_IN_PLACE,
    "0.3 from NumPy": "import numpy\nsectors = numpy.float64(8.0)",
    "0.3 as a fraction": "import fractions\nsectors = fractions.Fraction('8')",
    "0.3 as a decimal": "import decimal\nsectors = decimal.Decimal('8')",
    "0.1": "def mix(weights, values):\n    total = torch.zeros(values.shape[1]).double()\n    for w, row in zip(weights, values):\n        total += w * row.double()\n    return total.float()\n",
    "1.5": "def attention(q, k, v, mask=None):\n    s = torch.einsum('bhmd,bhnd->bhnm', k, q) * q.shape[-1] ** -0.5\n    if mask is not None:\n        s = s + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)\n    return s.softmax(3).nan_to_num() @ v\n",
    "2.9": "def axes_angles(positions, axis_of_pair, frequencies):\n    pick = torch.zeros(positions.shape[1], len(axis_of_pair))\n    for pair, axis in enumerate(axis_of_pair):\n        pick[axis, pair] = frequencies[pair]\n    return positions.float() @ pick\n",
    "3.4": "def grouped_attention(q, k, v):\n    q = q.unflatten(1, (k.shape[1], -1))\n    p = torch.einsum('bhmd,bhgnd->bhgnm', k, q).div(q.shape[-1] ** 0.5).softmax(-1)\n    return torch.einsum('bhme,bhgnm->bhgne', v, p).flatten(1, 2)\n",
    "3.13": find("3.13").solution.replace("pair < heads * 32", "pair < heads * n").replace(
        "pair / 32, row = pair % 32", "pair / n, row = pair % n").replace("weight[pair]", "weight[head * 32 + row]"),
    "4.12": "def products(q, k, gates):\n    total = gates.log().cumsum(0)\n    return (q[:, None] * k * (total[:, None] - total).exp()).sum(-1).tril()\n",
    "6.6": "def count_tiles(n_q, n_k, tile_q, tile_k):\n    sees = torch.ones(n_q, n_k).tril(n_k - n_q).bool()\n"
           "    parts = [p for rows in sees.split(tile_q) for p in rows.split(tile_k, 1)]\n"
           "    full, some = (sum(f(p).long() for p in parts) for f in (torch.all, torch.any))\n    return len(parts) - some, some - full, full\n",
    "5.5": ATTEND_LISTED, "7.6": "parts = math.ceil(4.8e12 * 700e-9 / (4 * 8 * 512) / 8)\n"}


@pytest.mark.parametrize("name", RIGHT)
def test_right_work_of_any_kind_passes(name):
    verdict = core.evaluate(find(name.split()[0]), RIGHT[name], 3)
    assert verdict.passed, str(verdict)


def test_a_verdict_speaks_of_what_the_student_wrote():
    """A part inside a part in one phrase, no operation blamed for a NaN that was asked for, inputs by their names."""
    cache, gradient = find("7.2"), find("1.13")
    told = str(core.evaluate(cache, cache.solution.replace("self.k[:, :self.length]", "self.k[:self.length]"), 3))
    assert "append 1, keys: has shape" in told and "The first NaN" not in told
    for id, old, new, said in [
            ("7.7", "p * v[", "score * v[", "The result's part_out: at"), ("8.8", "source\n", "source or None\n", "is None, expected the number 0.\n"),
            ("7.2", "return self.k[:, :self.length],", "return [self.k[:, :self.length]]  #", "\n  `view` returns two tensors, the keys"),
            ("9.4", "return torch.cat([2 * q", "return torch.cat([k, bias], -1), torch.cat([2 * q", "no pair of matrices of one width")]:
        assert said in str(core.evaluate(find(id), find(id).solution.replace(old, new), 3))
    told = core.evaluate(gradient, gradient.solution.replace("return", "g -= (p * g).sum(-1, keepdim=True)\n    return p * g #"), 3)
    assert told.headline.endswith("changes its input `g` in place.")
    assert show(torch.arange(25)) == "[ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, ..., 24]  (int64, 25)"


NEAR = {        # near a known mistake: the name that is true of it, if there is one
    "0.2": (("    if (i < n) out", "    if (i > n) return;\n    out"), "lets threads past the end work"),
    "0.4": (("a_tile[ty][tx] = row < m && start + tx < k ? a[row * k + start + tx]",
             "for (int e = 0; e < TILE; e++) a_tile[ty][e] = row < m && start + e < k ? a[row * k + start + e]"),
            "reads an element once per product, which the tiles are there to save"),
    "1.10": (("largest = new_largest;", "out[row * columns + c] = largest = new_largest;"), None),
    "3.13": (("out[e] = sum", "out[e % latent_dim] = sum"), None), "5.6": (("j * d + c", "j * 32 + c"), None),
    "1.10 twice in a line": (("float new_largest = fmaxf(largest, entry)", "float new_largest = fmaxf(largest, x[row * columns + c])"), "reads every entry three times"),
    "2.3": (("torch.arange(n)", "torch.arange(n).half()"), None), "5.11": (("chosen.clamp(min=0)", "chosen.abs()"), None),
    "2.5": (("unit >= n * half", "unit >= n * 2 * half"), "lets threads past the last pair work"),
    "2.6": (("angles[i]", "angles[row * pairs + i]"), "takes the number of the thread for that of the pair in its row"),
    "5.6 and returns": (("    float sum", "    if (start[row] == start[row + 1]) return;\n    float sum"), "leaves a row that visits nothing unwritten"),
    "6.2": (("torch.maximum(m, s)", "torch.maximum(m, s.abs())"), None), "6.2 in place": (("p * value", "value.mul_(p)"), None),
    "9.9": (("return mean,", "return abs(mean),"), None), "10.1": (("+= count", "+= count * word.count(''.join(pair))"), None),
    "10.7": (("before < p", "before < 2"), None), "8.8": (("source\n", "source or None\n"), None),
    "7.9": (("[j for j in range(t + 1) if j < n_sink or", "[j for j in range(max(t + 1, n_sink)) if j < n_sink or"), None),
    "8.6": (("__syncthreads();\n    for (int w", "__syncthreads();\n    largest = 0.0f;\n    for (int w"), None),
    "8.11": (("while free < need:", "while free < need and len(held) > 1:"), None),
    "9.1": (("a.sort().values - b.sort().values", "a.unique() - b.unique()"), None),
    "9.6": (("    if (q0 + ty < n_q) {\n", "    if (k0 + tx >= n_k) return;\n    if (q0 + ty < n_q) {\n"), None)}


@pytest.mark.parametrize("id", NEAR)
def test_a_mistake_is_named_only_where_the_name_is_true(id):
    (old, new), name = NEAR[id]
    ex = find(id.split()[0])
    assert old in ex.solution
    verdict = core.evaluate(ex, ex.solution.replace(old, new), 3)
    assert (verdict.status, verdict.misconception) == (WRONG, name), str(verdict)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_all_kinds_in_order(chapter):
    here, without = load_chapter(chapter), {"start_here": {"repair", "choose"}, "kv_cache": {"choose"}}
    assert {e.kind for e in here} == set(KINDS) - without.get(chapter, set())
    assert [e.id for e in here] == [f"{CHAPTERS.index(chapter)}.{i + 1}" for i in range(len(here))]
    assert chapter != "w2_attention" or sum(e.language == "cuda" for e in here) == 1


def over(counts):
    exercise = SimpleNamespace(budget=lambda case: {"sectors": 10, "barriers": 2}, least=None)
    return over_counts(exercise, None, SimpleNamespace(counts=counts))


def test_counts_within_a_budget_and_above():
    assert over({"sectors": 8, "atomics": 2, "barriers": 2}) is None
    assert over({"sectors": 8, "atomics": 3, "barriers": 2}).startswith("uses 11 sectors where 10 are enough")
    assert used({"barriers": 3, "atomics": 5}, "barriers") == 3


def test_serial_work_and_tiles_that_are_elsewhere_are_named():
    exercise = SimpleNamespace(budget=lambda case: {"longest_thread": 3 * 275, "sectors": 9}, least=lambda case: 4096)

    def told(**counts):
        return over_counts(exercise, None, SimpleNamespace(counts={"sectors": 8, "shared_bytes": 4096} | counts))
    assert told(longest_thread=825) is None
    assert "one thread does 826 steps, the reference's longest does 275" in told(longest_thread=826, sectors=10)
    assert "take 4,095 bytes per block, and that takes 4,096" in told(longest_thread=1, shared_bytes=4095)


@pytest.mark.parametrize("counts",
                         [None, {}, {"sectors": 8}, {"sectors": float("nan"), "barriers": 0},
                          {"sectors": -9, "barriers": 0}, {"sectors": 8, "atomics": -8, "barriers": 0},
                          {"sectors": "8", "barriers": 0}, {"sectors": True, "barriers": 0}])
def test_what_is_no_count_is_within_no_budget(counts):
    assert "was not counted" in over(counts)
