"""The vocabulary of argument checks, and the arithmetic that launches share."""
import pytest
import torch
from hypothesis import given, strategies as st

from course_lib import checks
from course_lib.launching import (HALF, MULTIPROCESSORS, aligned, multiprocessors, parts_that_fit,
                                  parts_to_fill, widened)


@pytest.mark.parametrize("message, call", [
    ("n must be an integer of at least 1; got True", lambda: checks.check_count("n", True)),
    ("n must be an integer from 0 to 3; got 4", lambda: checks.check_count("n", 4, 0, 3)),
    ("d must be an even integer of at least 2; got 3", lambda: checks.check_count("d", 3, 2, even=True)),
    ("w must be None or an integer of at least 1; got 0", lambda: checks.check_count("w", 0, optional=True)),
    ("a must be an integer of at least 1; got True", lambda: checks.check_sizes(a=True)),
    ("b must be an integer of at least 1; got 2.0", lambda: checks.check_sizes(a=1, b=2.0)),
    ("base must be a finite number above 0; got 0", lambda: checks.check_number("base", 0, above=0)),
    ("p must be a finite number of at least 0 and of at most 1; got 2", lambda: checks.check_number("p", 2, 0, most=1)),
    ("p must be a finite number; got nan", lambda: checks.check_number("p", float("nan"))),
    ('form must be "a", "b" or 3; got \'c\'', lambda: checks.check_choice("form", "c", ("a", "b", 3))),
    ("d must be a multiple of n; got 10 and 3", lambda: checks.check_multiple("d", 10, "n", 3)),
    ("x must be a tensor of shape (n, 3); got list", lambda: checks.check_tensor("x", [], ("n", 3))),
    ("x must be a boolean tensor; got torch.float32 of shape (2,)",
     lambda: checks.check_tensor("x", torch.ones(2), kind="boolean")),
    ("x must be a floating-point tensor of shape (n, 3); got torch.float32 of shape (2, 4)",
     lambda: checks.check_tensor("x", torch.ones(2, 4), ("n", 3), "floating-point")),
    ("i must be a tensor of integers of shape (b,); got torch.bool of shape (1,)",
     lambda: checks.check_integers("i", [True], ("b",))),
    ("i must be from 0 to 3; got values from 1 to 4", lambda: checks.check_integers("i", [1, 4], ("b",), 0, 3)),
    ("q must be float32 or float16 for this kernel; got bfloat16",
     lambda: checks.check_dtype("q", torch.ones(1).bfloat16(), torch.float32, torch.float16)),
    ("q needs too much shared memory: 2 heads of 64 take 50,000 bytes per block, the limit is 49,152. Use rung 2",
     lambda: checks.check_shared_memory("q", "2 heads of 64", 50000, 48 << 10, "Use rung 2"))])
def test_the_message_names_the_argument_what_was_wanted_and_what_came(message, call):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == message


def test_what_fits_passes():
    checks.check_count("n", 3, 1, 3, optional=True), checks.check_count("n", None, optional=True)
    checks.check_tensor("x", torch.ones(2, 3), ("n", 3), "floating-point")
    assert checks.check_integers("i", [], ("b",)).dtype == torch.int64
    assert checks.check_integers("i", [0, 3], ("b",), 0, 3).tolist() == [0, 3]


@given(st.integers(1, 2000), st.integers(0, 300), st.integers(0, 10**5), st.integers(1, 1000))
def test_parts(wanted, blocks, length, shortest):
    fill, fit = parts_to_fill(wanted, blocks, length,
                              shortest), parts_that_fit(wanted, blocks, length, shortest)
    assert 1 <= fit <= fill <= max(1, length // shortest)
    assert fit == 1 or fit * blocks <= wanted
    if fill < length // shortest:
        assert fill * max(blocks, 1) >= wanted > (fill - 1) * blocks


def test_aligned_and_widened():
    whole = torch.arange(20.0)
    for x in (whole[1:], whole.view(4, 5).T, whole):
        (y,) = aligned(x)
        assert y.is_contiguous() and y.data_ptr() % 16 == 0 and torch.equal(x, y)
    assert [x.dtype for x in widened(*(torch.ones(1, dtype=d) for d in (*HALF, torch.float64)))] == [
        torch.float32, torch.float32, torch.float64]
    assert multiprocessors("cpu") == MULTIPROCESSORS
