"""Linear attention on the tensor cores: against float64, with a carried state, in segments, sanitized and
counted."""

import pytest
import torch

from course_lib import cuda
from course_lib.linear_attention import tensor_core as linear_tensor_core
from course_lib.linear_attention import linear_attention, linear_attention_kernel


def case(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed + n + d)
    q, k, v = (torch.randn(1, 2, n, d, generator=generator).bfloat16() for _ in "qkv")
    return q, k, v, torch.rand(1, 2, d * d + d, generator=generator)


def split(state, d):
    return state[..., :d * d].unflatten(-1, (d, d)), state[..., d * d:]


def close(got, want, error=5e-3):
    return (got.double() - want.double()).norm() <= error * want.double().norm()


@pytest.mark.parametrize("n, d, segments",
                         [(1, 64, 1), (100, 64, 1),
                          *(pytest.param(*case, marks=pytest.mark.slow)
                            for case in ((70, 128, 1), (200, 64, 3)))])
@pytest.mark.parametrize("feature_map, normalise", [("elu", True), ("relu", True), ("identity", False)])
def test_it_is_linear_attention(n, d, segments, feature_map, normalise):
    q, k, v, start = case(n, d)
    with cuda.sanitize():
        out, after = linear_tensor_core.run(q, k, v, start, ["elu", "relu", "identity"].index(feature_map),
                                            normalise, segments)
    want, state = linear_attention(*(x.double() for x in (q, k, v)), feature_map, causal=True,
                                   normalise=normalise, state=split(start.double(), d), return_state=True)
    assert out.dtype == torch.bfloat16 and close(out, want)
    assert all(close(got, x) for got, x in zip(split(after, d), state))


def test_the_wrapper_takes_it_for_bfloat16_and_carries_the_state():
    q, k, v, _ = case(130, 64)
    want = linear_attention(*(x.double() for x in (q, k, v)), causal=True)
    first, state = linear_attention_kernel(*(x[:, :, :77] for x in (q, k, v)), return_state=True)
    second = linear_attention_kernel(*(x[:, :, 77:] for x in (q, k, v)), state=state)
    assert close(torch.cat([first, second], 2), want, 1e-2)
    with pytest.raises(ValueError, match="^q must be bfloat16"):
        linear_attention_kernel(q.float(), k.float(), v.float(), rung=4)


@pytest.mark.parametrize("segments, times_read", [(1, 1), (2, 2)])
def test_what_it_asks_for(segments, times_read):
    """q, k, v and out once; keys and values again for each segment but the last; the states in float."""
    n, d, heads, size = 128, 64, 2, 64 * 64 + 64
    q, k, v, start = case(n, d)
    with cuda.profile() as report:
        linear_tensor_core.run(q, k, v, start, 0, True, segments)
    rows, walk = heads * n * d * 2, report.launches[-1]
    z_again = 3 * heads * segments * d * 4              # an entry of z is read by the four lanes of its row
    assert walk.global_load.bytes == 3 * rows + heads * segments * size * 4 + z_again
    assert walk.global_store.bytes == rows + heads * size * 4
    assert walk.global_load.moved == 3 * rows + heads * segments * size * 4
    assert walk.shared_load.excess <= walk.shared_load.wavefronts // 50
    if segments == 2:
        assert report.launches[0].global_load.bytes == 2 * rows and len(report.launches) == 3
    else:
        assert len(report.launches) == 1
