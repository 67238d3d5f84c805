"""What the sanitizer names in a kernel of bugs.toml is not proved of it."""
import re

import pytest
from test_bugs import BUGS, SOURCE

import laptop_cuda as cuda

pytest.importorskip("z3")
pytest.importorskip("clang.cindex")
# A loop that waits for data, or a warp's lanes at a shuffle, is none of the claims.
CLAIMS = {"out of bounds": {"inside"}, "misaligned": {"inside"}, "race": {"stores", "races"},
          "barrier divergence": {"barriers"}}
PIECES = [piece for piece in re.split(r"(?m)^(?=\S)(?!\})", SOURCE) if "cg" not in piece and "cooperative" not in piece]


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.kind in CLAIMS], ids=lambda bug: bug.name)
def test_a_bug_is_not_proved_away(bug):
    if not any(f" {bug.name}(" in piece for piece in PIECES):
        pytest.skip("not run: cooperative groups are not followed")
    text, = cuda.compile(SOURCE)[bug.name]._texts()
    given = dict(zip(text.parameters, bug.args()))
    arrays = {name: a.numel() if hasattr(a, "numel") else 0 for name, a in given.items() if not isinstance(a, int)}
    values = {name: a for name, a in given.items() if isinstance(a, int)}
    found = cuda.prove(("".join(PIECES), bug.name), {}, bug.grid, bug.block, arrays, values, shared=bug.shared, seconds=3)
    assert CLAIMS[bug.kind] & {f.claim for f in found.findings if f.verdict != "proved"}, found
