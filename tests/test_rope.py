"""Rotary positions: the rotation, its relative property, and the table."""
import pytest
import torch

from course_lib.rope import apply_rope, rope_table


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("rotary_dim", [None, 6])
def test_scores_depend_on_the_distance_only(layout, rotary_dim):
    cos, sin = rope_table(64, rotary_dim or 10, dtype=torch.float64)
    q, k = rand(1, 2, 1, 10), rand(1, 2, 1, 10, seed=1)

    def score(m, n):
        turned = [apply_rope(x, cos, sin, torch.tensor([p]), layout, rotary_dim) for x, p in ((q, m), (k, n))]
        return (turned[0] * turned[1]).sum(-1)

    torch.testing.assert_close(score(3, 10), score(40, 47))
    assert not torch.allclose(score(3, 10), score(3, 11))
    torch.testing.assert_close(score(5, 5), (q * k).sum(-1))


def test_layouts_are_a_permutation_of_each_other():
    cos, sin = rope_table(9, 8, dtype=torch.float64)
    x = rand(2, 3, 9, 8)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    half = apply_rope(x[..., order], cos, sin, layout="half")
    torch.testing.assert_close(apply_rope(x, cos, sin)[..., order], half)


def test_positions_by_row_and_by_batch():
    cos, sin = rope_table(9, 8, dtype=torch.float64)
    x = rand(2, 3, 4, 8)
    torch.testing.assert_close(apply_rope(x, cos, sin), apply_rope(x, cos, sin, torch.arange(4)))
    both = apply_rope(x, cos, sin, torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]]))
    torch.testing.assert_close(both[1:], apply_rope(x[1:], cos, sin, torch.arange(5, 9)))


@pytest.mark.parametrize("argument, call", [
    ("head_dim", lambda x, c, s: rope_table(4, 7)), ("n", lambda x, c, s: rope_table(-1, 8)),
    ("base", lambda x, c, s: rope_table(4, 8, base=0)), ("x", lambda x, c, s: apply_rope(x[0], c, s)),
    ("cos", lambda x, c, s: apply_rope(x[..., :6], c, s)), ("sin", lambda x, c, s: apply_rope(x, c, s[:3])),
    ("layout", lambda x, c, s: apply_rope(x, c, s, layout="pairs")),
    ("rotary_dim", lambda x, c, s: apply_rope(x, c, s, rotary_dim=3)),
    ("positions", lambda x, c, s: apply_rope(x, c[:3], s[:3])),
    ("positions", lambda x, c, s: apply_rope(x, c, s, torch.tensor([0, 1, 2, 9]))),
    ("positions", lambda x, c, s: apply_rope(x, c, s, torch.tensor([0, 1, 2, -1]))),
    ("positions", lambda x, c, s: apply_rope(x, c, s, torch.tensor([0, 1]))),
    ("positions", lambda x, c, s: apply_rope(x, c, s, torch.tensor([0.0, 1, 2, 3]))),
])
def test_bad_input_is_named(argument, call):
    cos, sin = rope_table(9, 8)
    with pytest.raises(ValueError, match=rf"^{argument} must "):
        call(torch.zeros(2, 3, 4, 8), cos, sin)
