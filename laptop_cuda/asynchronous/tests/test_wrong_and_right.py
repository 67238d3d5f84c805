"""Kernels that are right in every order, and beside each what is wrong without one wait, fence, byte or arrival, as pairs.toml
lists them; `launched` in each file gives what a kernel found, and what is right."""
import tomllib
from pathlib import Path

import copies
import pytest
import test_barriers
import test_clusters
import test_products
import test_tensors

import laptop_cuda as cuda
from engine_kit import EVERY_ORDER, use_compiler

MODULES = {"barriers": test_barriers, "copies": copies, "clusters": test_clusters, "products": test_products,
           "tensors": test_tensors}
PAIRS = tomllib.loads(Path(__file__).with_name("pairs.toml").read_text(encoding="utf-8"))
RULES = PAIRS.pop("rules")


def test_each_rule_that_is_told_has_a_pair():
    told = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8").partition("| rule |")[2].partition("\n\n")[0]
    assert [row.split(" | ")[0][2:] for row in told.splitlines()[2:]] == list(RULES)
    for (of, *right), (where, *wrong) in RULES.values():
        assert right in PAIRS[of]["right"] and [*wrong, "race"] in [row[:3] for row in PAIRS[where]["wrong"]]


def rows(kind):
    return [pytest.param(of, *row, *[{}] * (kind == "wrong" and len(row) < 6), id=f"{of}-{row[0]}-{row[1]}")
            for of, pairs in PAIRS.items() for row in pairs[kind]]


@pytest.mark.parametrize("of, name, fault", rows("right"))
def test_right_kernels_are_clean_in_every_order(of, name, fault):
    for how in EVERY_ORDER:
        with how() as notes:
            found, right = MODULES[of].launched(name, fault)
        assert (found == right).all(), how
        assert notes is None or any("a thread read it by" in n for n in notes) == ([name, fault] in PAIRS[of].get("noted", [])), notes


@pytest.mark.parametrize("of, name, fault, kind, words, text, otherwise", rows("wrong"))
def test_wrong_ones_are_errors_with_their_line(of, name, fault, kind, words, text, otherwise):
    for order in ("late", *PAIRS[of]["orders"]):
        with pytest.raises(cuda.KernelError) as caught, cuda.sanitize(order=order):
            MODULES[of].launched(name, fault)
        said = str(caught.value)
        assert caught.value.kind == otherwise.get(order, kind), said
        if order == "late":
            assert all(word in said for word in ([words] if isinstance(words, str) else words)), said
            assert text in MODULES[of].SOURCE.splitlines()[caught.value.line - 1], said


@pytest.mark.slow
def test_wrong_products_are_errors_with_clang_too(monkeypatch):
    use_compiler(monkeypatch, "clang++")
    for row in PAIRS["products"]["wrong"]:
        test_wrong_ones_are_errors_with_their_line("products", *row, {})
