"""Host code that reads or writes device memory: a crash on a card, a finding with its line here."""
import tomllib
from pathlib import Path

import pytest
from engine_kit import compiler, line_of  # noqa: F401

from laptop_cuda.programs import report
from laptop_cuda.programs.host_errors import is_for_device

STRINGS, WRONG, CRASHES, RIGHT, BOTH_SIDES, UNKNOWN = tomllib.loads(
    Path(__file__).with_name("host_access.toml").read_text(encoding="utf-8")).values()


def test_numbers_and_strings_in_device_memory_are_found_though_nothing_is_launched(program):
    ran = program(STRINGS)
    assert [error["line"] for error in ran.errors] == sorted(line_of(STRINGS, "// FOUND")) and not ran.status
    assert "host code writes d_x[3]: d_x has 16 elements in device memory" in ran.errors[0]["message"]
    assert "host code reads d_s[0]" in ran.errors[1]["message"]
    assert "no kernel" not in report.text(ran, "sanitize", {})
    assert ran.stdout.startswith("5% right  |right\n")


@pytest.mark.slow
def test_each_line_of_host_code_that_touches_device_memory_is_found_once(compiler, program):
    ran = program(WRONG)
    assert (ran.status, ran.crash, len(ran.launches)) == (0, "", 2)
    assert sorted(error["line"] for error in ran.errors) == sorted(line_of(WRONG, "// FOUND"))
    assert {error["kind"] for error in ran.errors} == {"host access"}
    said = {error["line"]: error["message"] for error in ran.errors}
    (first, *_), last = sorted(said.items()), said[max(line_of(WRONG, "free(d_x);"))]
    assert ("host code reads d_x[0]: d_x has 64 elements in device memory" in first[1]
            and "cudaMemcpy" in first[1])
    assert "free() of d_x" in last and "cudaFree" in last


@pytest.mark.slow
def test_a_plain_run_crashes_where_a_card_does_and_names_line_and_array(compiler, program):
    lines = sorted(line_of(CRASHES, "// FOUND"))
    for which, line in enumerate(lines):
        ran = program(CRASHES, arguments=[str(which)], mode="plain")
        (error,) = ran.errors
        assert (ran.status, error["kind"], error["line"]) == (128 + 11, "host access", line)
        assert "d_x" in error["message"] and f"line {line}" in error["message"] and "crashed" in ran.crash
    ran = program(CRASHES, arguments=["5"], mode="plain")
    assert (ran.status, ran.stdout, ran.errors, ran.crash) == (0, "0\n", [], "")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_what_the_host_may_touch_is_no_finding(compiler, mode, program):
    ran = program(RIGHT, mode=mode)
    assert (ran.stdout, ran.errors, ran.crash) == ("2143 3 9 1 2143\n", [], ""), ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_what_nvcc_compiles_for_the_device_alone_is_no_finding(mode, program):
    ran = program(BOTH_SIDES, mode=mode)
    assert (ran.status, ran.stdout, ran.errors, ran.crash) == (0, "1\n", [], "")


def test_conditions_on_the_architecture():
    text = BOTH_SIDES.replace("return on_device[i];", "return on_device[i]; // HERE")
    assert all(is_for_device(text, line) for line in line_of(text, "// HERE"))
    assert not any(is_for_device(text, line) for line in (4, 12, *line_of(text, "return 0;")))


@pytest.mark.slow
def test_a_kernel_that_follows_a_pointer_of_the_host_is_found(compiler, program):
    for arguments in ([], ["1"], ["1", "2"]):
        ran = program(UNKNOWN, arguments=arguments)
        *misuse, error = ran.errors
        assert {e["kind"] for e in misuse} == {"misuse"} and len(misuse) == 4     # the unknown direction is none
        assert ((error["kind"], error["line"]) == ("out of bounds", 6)
                and "not in device memory" in error["message"])
        assert ran.stdout == ("cudaErrorInvalidValue cudaErrorInvalidValue cudaErrorInvalidMemcpyDirection "
                              "cudaErrorInvalidValue cudaErrorInvalidValue\n")
