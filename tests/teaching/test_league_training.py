"""The league's training problem: what is counted, the same bits everywhere, and cheats that gain nothing."""
import math
import os
import random
import subprocess
import sys

import pytest
import torch

from adversaries import training_cheats as cheats
from course_lib.teaching import walls
from course_lib.teaching.league import exact, language, model, tensors, training
from course_lib.teaching.league.language import LONGEST, QUESTIONS, SYMBOLS, data
from course_lib.teaching.league.program import ALLOWED, Program
from course_lib.teaching.league.rule import NotAllowed
from course_lib.teaching.league.submission import read
from course_lib.teaching.sandbox import Sandbox

linux = pytest.mark.skipif(sys.platform != "linux" or bool(walls.missing()),
                           reason="not run: this machine cannot build the walls: " + "; ".join(walls.missing()))


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


@pytest.fixture
def cheap(monkeypatch):
    """A budget of a few steps, since most tests are not about the loss."""
    monkeypatch.setattr(training, "BUDGET", 300_000_000)


def submission(source: str):
    given = {"league": tensors}
    exec(source + model.CALL, given)
    return read(given["program"]())


# --- arithmetic ---------------------------------------------------------------------------------------------

def test_exp_and_log_are_those_of_float64_rounded():
    x = torch.linspace(-87.0, 88.0, 20_001)
    assert (exact.exp(x).double() / x.double().exp() - 1).abs().max() < 2.0 ** -24 * 1.001
    y = torch.cat([torch.linspace(1e-6, 40.0, 20_001), torch.tensor([1e-40, 3e38])])
    want = y.double().log()
    assert ((exact.log(y).double() - want).abs() <= want.abs() * 2.0 ** -24 * 1.001).all()
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -1.0])
    assert str(exact.exp(odd).tolist()) == str([math.nan, math.inf, 0.0, 1.0, exact.exp(odd[4:]).item()])
    assert str(exact.log(odd).tolist()) == "[nan, inf, nan, -inf, nan]"


@pytest.mark.parametrize("k", [1, 7, 64, 4096])
def test_sums_and_products_do_not_depend_on_the_order(k):
    rng = torch.Generator().manual_seed(k)
    a, b = torch.randn(5, k, generator=rng), torch.randn(k, 3, generator=rng)
    order = torch.randperm(k, generator=rng)
    assert torch.equal(exact.product(a, b), exact.product(a[:, order], b[order]))
    assert torch.equal(exact.total(a, 1), exact.total(a[:, order], 1))
    assert torch.allclose(exact.product(a, b), a @ b, atol=1e-4) and torch.allclose(exact.total(a, 1), a.sum(1, True))
    index = torch.randint(4, (k,), generator=rng).float()
    sums = exact.add_rows(b, index, 4)
    assert torch.equal(sums, exact.add_rows(b[order], index[order], 4))
    assert torch.allclose(sums, torch.zeros(4, 3).index_add(0, index.long(), b), atol=1e-4)


# --- gradients and prices -----------------------------------------------------------------------------------

def everything(p, x):
    """A number through every operation that has a gradient."""
    a = p["a"].rows(x).reshape(3, 4, 5).transpose(1, 2).slice(1, 1, 4)
    a = a.join([a.hold(), (a * 0.5 + 2.0)], 1)
    b = (p["b"] - a.max(-1)).exp() / (a * a + 1.0).sum(1).sqrt()
    c = (b.maximum(0.3) + p["c"].expand(b.shape)) * (b > 0.4) - b.log()
    return (c @ p["d"]).sum(0).sum(1).sum(2)


def test_gradients_agree_with_autograd():
    rng = torch.Generator().manual_seed(3)
    shapes = {"a": (12, 5), "b": (3, 9, 4), "c": (4,), "d": (4, 2)}
    nodes: list = []
    given = {name: tensors.Traced(nodes, shape) for name, shape in shapes.items()}
    of = everything(given, tensors.Traced(nodes, (12,)))
    program = Program()
    for (name, inputs, numbers), shape in zip(nodes, [*shapes.values(), (12,), *[None] * len(nodes)]):
        program.input(shape) if name == "input" else program.add(name, tuple(inputs), tuple(numbers))
    one = program.add("full", (), (1.0, *program.shapes[of.place]))
    places = program.differentiate(one, of.place, [0, 1, 2, 3])
    values = [torch.rand(s, generator=rng) + 0.1 for s in shapes.values()]
    index = torch.randperm(12, generator=rng).float()            # no ties, which torch's maximum divides
    results = program.run([*values, index])
    leaves = [v.clone().requires_grad_() for v in values]
    plain = everything({name: Plain(v) for name, v in zip(shapes, leaves)}, index).x
    assert torch.allclose(results[of.place], plain, rtol=1e-4)
    for place, want in zip(places, torch.autograd.grad(plain.sum(), leaves)):
        assert torch.allclose(results[place], want, atol=1e-3, rtol=1e-3)
    used = {name for name, *_ in program.nodes}
    assert set(ALLOWED) <= used | {"count", "subtract", "full"}


class Plain:
    """torch under the names of a traced tensor."""
    def __init__(self, x):
        self.x = x

    @property
    def shape(self):
        return self.x.shape

    def __getattr__(self, name):
        return lambda *args: Plain(getattr(self.x, name)(*map(unwrapped, args)))

    def _two(name):
        return lambda self, other: Plain(getattr(self.x, name)(unwrapped(other)))
    __add__, __sub__, __mul__, __truediv__, __matmul__ = map(
        _two, ("__add__", "__sub__", "__mul__", "__truediv__", "__matmul__"))

    def __gt__(self, other):
        return Plain((self.x > unwrapped(other)).float())

    def rows(self, index):
        return Plain(self.x[index.long()])

    def slice(self, dim, start, stop):
        return Plain(self.x.narrow(dim, start, stop - start))

    def join(self, others, dim):
        return Plain(torch.cat([self.x, *(o.x for o in others)], dim))

    def hold(self):
        return Plain(self.x.detach())

    def sum(self, dim):
        return Plain(self.x.sum(dim, keepdim=True))

    def max(self, dim):
        return Plain(self.x.amax(dim, keepdim=True))

    def maximum(self, number):
        return Plain(self.x.clamp(min=number))


def unwrapped(x):
    return x.x if isinstance(x, Plain) else x


@pytest.mark.parametrize("name, inputs, numbers, price", [
    ("matmul", [(5, 7), (7, 3)], (), 2 * 5 * 7 * 3), ("multiply", [(5, 7), (5, 7)], (), 35),
    ("sum", [(5, 7)], (1,), 35), ("exp", [(5, 7)], (), 35 * 32), ("rows", [(9, 4), (6,)], (), 24),
    ("join", [(5, 2), (5, 3)], (1,), 25), ("count", [], (8,), 8), ("transpose", [(5, 7)], (0, 1), 0),
    ("expand", [(1, 7)], (5, 7), 0)])
def test_the_price_of_an_operation(name, inputs, numbers, price):
    program = Program()
    places = tuple(program.input(shape) for shape in inputs)
    program.add(name, places, numbers)
    assert program.price() == price


def test_a_product_of_matrices_costs_no_less_as_products_and_sums():
    def cost(source: str) -> int:
        return submission(cheats.changed((cheats.RETURN, source))).price
    detour = ("    wide = hidden.reshape(BATCH, n, HIDDEN, 1).expand((BATCH, n, HIDDEN, league.VOCAB))\n"
              "    return (wide * p['out']).sum(2).reshape(BATCH, n, league.VOCAB)\n")
    assert cost(detour) >= cost(cheats.RETURN)


# --- the language -------------------------------------------------------------------------------------------

def test_no_question_holds_another_ones_answer_and_the_entropy_is_that_of_the_text():
    made = data(1)
    assert made.asked.shape == (QUESTIONS, LONGEST) and made.answers.shape == (QUESTIONS,)
    assert 0.5 < made.entropy < 0.7                  # 2,048 answers of a language of about 0.6 nats per symbol
    words = [language._words(random.Random(seed)) for seed in (1, 2)]
    assert len({*words[0]} & {*words[1]}) < 10
    assert {SYMBOLS[i] for i in made.train[:2000].tolist()} == set(SYMBOLS)


# --- training -----------------------------------------------------------------------------------------------

BITS = """
import hashlib, torch
from course_lib.teaching.league import model, tensors, training
from course_lib.teaching.league.language import data
from course_lib.teaching.league.submission import read
training.BUDGET = 300_000_000
given = {"league": tensors}
exec(model.PAR + model.CALL, given)
seen, real = [], training.validation_loss
training.validation_loss = lambda made, weights, d: seen.extend(weights) or real(made, weights, d)
result = training.trained(read(given["program"]()), data(1), 1)
torch.manual_seed(0)
plain = torch.randn(300, 300) @ torch.randn(300, 300)
print(result, *(hashlib.sha256(b"".join(w.numpy().tobytes() for w in of)).hexdigest() for of in (seen, [plain])))
"""


@pytest.mark.slow
def test_the_bits_are_the_same_on_other_processors():
    """One thread and the kernels for this processor; two, and those for the oldest x86."""
    said = []
    for more in ({}, {"OMP_NUM_THREADS": "2", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}):
        made = subprocess.run([sys.executable, "-c", BITS], env=os.environ | more, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        said.append(made.stdout.split())
    assert said[0][:-1] == said[1][:-1]


def test_the_budget_decides_the_steps(cheap):
    made = submission(model.PAR)
    result = training.trained(made, data(1), 1)
    assert result.steps == 300_000_000 // made.price and result.flops == result.steps * made.price
    assert result.loss < math.log(len(SYMBOLS)) - 0.2


@pytest.mark.slow
def test_what_peeks_in_training_learns_nothing():
    plain, peeking = (training.trained(submission(s), data(1), 1).loss for s in (model.PAR, cheats.PEEKS))
    assert plain < 1.8 and peeking > 2.5


def test_a_program_that_would_take_minutes_gets_fewer_steps():
    tiny = submission(cheats.changed(("BATCH, LENGTH, STATES = 64, 32", "BATCH, LENGTH, STATES = 2, 4")))
    assert training.steps_of(tiny) * tiny.price < training.BUDGET / 2
    slow = cheats.changed(("BATCH, LENGTH, STATES = 64", "BATCH, LENGTH, STATES = 1"), (
        cheats.RETURN, "    made = hidden @ p['out']\n    for _ in range(900):\n        made = made + 0.0\n"
                       "    return made\n"))
    with pytest.raises(NotAllowed, match="too long"):
        training.steps_of(submission(slow))


@linux
@pytest.mark.slow
def test_the_plain_model_has_a_score_from_behind_the_walls(cheap, sandbox):
    made = model.score(model.PAR, 1, sandbox)
    assert made.counts == model.score(model.PAR, 1, sandbox).counts and made.counts[0] > 0, made.why


def test_there_are_at_least_ten_cheats():
    assert len(cheats.REFUSED) + len(cheats.NOTHING_GAINED) >= 30


@linux
@pytest.mark.parametrize("name", ["hands in a loss instead of a program", "a table learnt at home as constants",
                                  *(pytest.param(n, marks=pytest.mark.slow) for n in cheats.REFUSED)])
def test_a_cheat_has_no_score(cheap, sandbox, name):
    made = model.score(cheats.REFUSED[name], 5, sandbox)
    assert made.counts is None and made.why


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", cheats.NOTHING_GAINED)
def test_what_is_done_in_the_students_process_gains_nothing(cheap, sandbox, name):
    assert model.score(cheats.NOTHING_GAINED[name], 5, sandbox) == model.score(model.PAR, 5, sandbox)
