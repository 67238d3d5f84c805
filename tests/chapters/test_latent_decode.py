"""Latent attention, one query per sequence, absorbed, by a kernel: against unfolded keys in float64."""
import math

import pytest
import torch

from course_lib import cuda, gqa
from course_lib.gpu.cases.gqa import unfolded
from course_lib.gqa import LatentAttention, flops_per_key, latent_decode_kernel
from course_lib.kv_cache import GrowingCache


def inputs(b, heads, head_dim, latent_dim, rope_dim, n, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    q, q_rope, latent, k_rope, *up = (torch.randn(shape, generator=generator).to(dtype) for shape in (
        (b, heads, 1, head_dim), (b, heads, 1, rope_dim), (b, 1, n, latent_dim), (b, 1, n, rope_dim),
        (heads, head_dim, latent_dim), (heads, head_dim, latent_dim)))
    return q, q_rope, latent, k_rope, *(x / math.sqrt(latent_dim) for x in up)


def reference(*given, lengths):
    return unfolded(*(x.double() for x in given), torch.tensor(lengths))


@pytest.mark.parametrize("heads_per_block", [None, 1, 4, 16])
@pytest.mark.parametrize("sizes",
                         [(1, 1, 1, 1, 1, 1), (2, 3, 5, 7, 3, 33), (2, 16, 8, 24, 8, 31),
                          (1, 20, 4, 65, 6, 100)])
def test_it_is_the_unfolded_form(sizes, heads_per_block):
    given = inputs(*sizes)
    with cuda.sanitize():
        got = latent_decode_kernel(*given, heads_per_block=heads_per_block)
    torch.testing.assert_close(got.double(), reference(*given, lengths=[sizes[-1]] * sizes[0]), atol=2e-6,
                               rtol=1e-5)


def test_the_sizes_of_deepseek():
    given = inputs(1, 17, 128, 512, 64, 19)
    with cuda.sanitize():
        got = latent_decode_kernel(*given)
    torch.testing.assert_close(got.double(), reference(*given, lengths=[19]), atol=1e-5, rtol=1e-5)


def test_places_after_the_end_are_not_read_and_no_token_gives_zero():
    given, lengths = inputs(3, 4, 8, 12, 4, 40), [17, 0, 40]
    for x in given[2:4]:
        for i, length in enumerate(lengths):
            x[i, :, length:] = math.nan
    with cuda.sanitize():
        got = latent_decode_kernel(*given, lengths=lengths)
    assert (got[1] == 0).all()
    for i in (0, 2):
        row = [x[i:i + 1] for x in given[:4]]
        torch.testing.assert_close(got[i:i + 1].double(),
                                   reference(*row, *given[4:], lengths=lengths[i:i + 1]), atol=2e-6,
                                   rtol=1e-5)
    assert (latent_decode_kernel(*inputs(1, 4, 8, 12, 4, 0)) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    given = inputs(2, 4, 16, 24, 8, 30, dtype)
    torch.testing.assert_close(latent_decode_kernel(*given).double(), reference(*given, lengths=[30, 30]),
                               atol=3e-2, rtol=3e-2)


def test_a_step_of_the_layer(monkeypatch):
    """The layer's own step, with its cache; what it attends with is the kernel."""
    torch.manual_seed(0)
    layer, x = LatentAttention(32, 4, 8, 12, 4, absorbed=True), torch.randn(2, 9, 32)
    want = layer(x)[:, -1:]
    cache = GrowingCache()
    layer(x[:, :-1], cache=cache)
    monkeypatch.setattr(layer, "_absorbed", lambda q, q_rope, latent, k_rope, mask, causal:
                        latent_decode_kernel(q, q_rope, latent, k_rope, layer.k_up, layer.v_up))
    with torch.no_grad():
        torch.testing.assert_close(layer(x[:, -1:], cache=cache), want, atol=1e-5, rtol=1e-5)


def counted(*given, **named):
    with cuda.profile() as report:
        latent_decode_kernel(*given, **named)
    return report.launches[0]


def test_a_latent_is_asked_for_once_per_block_of_heads():
    given = inputs(1, 16, 4, 64, 8, 64)
    queries, lengths, cache = 4 * 16 * 72, 4 * 128, 4 * 64 * 72
    for heads in (1, 4, 16):
        launch, blocks = counted(*given, heads_per_block=heads), 16 // heads
        assert launch.global_load.bytes == queries + blocks * (cache + lengths), heads
        assert launch.global_store.bytes == 4 * 16 * 64 and launch.shared_load.excess == 0


def test_its_intensity_is_that_of_the_theorem():
    """128 heads of DeepSeek-V3's proportions, bfloat16: FLOPs per unique byte, queries and outputs
    included."""
    n, c, r = 128, 16, 2
    launch = counted(*inputs(1, 128, 4, c, r, n, torch.bfloat16))
    moved = 32 * (launch.global_load.unique_sectors + launch.global_store.unique_sectors)
    limit = 128 * flops_per_key(4, c, r, absorbed=True) / (2 * (c + r))
    assert moved == 2 * (n * (c + r) + 128 * (2 * c + r)) + 32         # the last sector holds the length
    predicted = limit / (1 + 128 * (2 * c + r) / (n * (c + r)))
    assert math.isclose(128 * n * flops_per_key(4, c, r, absorbed=True) / (moved - 32), predicted)


@pytest.mark.parametrize("change, told", [
    (dict(q=torch.zeros(1, 4, 2, 8)), r"q must be a tensor of shape \(b, heads, 1, head_dim\)"),
    (dict(latent=torch.zeros(1, 4, 9, 12)), r"latent must be a tensor of shape \(1, 1, n, latent_dim\)"),
    (dict(k_rope=torch.zeros(1, 1, 8, 4)), r"k_rope must be a tensor of shape \(1, 1, 9, 4\)"),
    (dict(k_up=torch.zeros(4, 8, 11)), r"k_up must be a tensor of shape \(4, 8, 12\)"),
    (dict(v_up=torch.zeros(4, 8, 12).half()), "v_up must have the dtype of q"),
    (dict(lengths=[10]), "lengths must be from 0 to 9"), (dict(heads_per_block=3), "heads_per_block must be"),
])
def test_bad_input_is_named(change, told):
    names = "q", "q_rope", "latent", "k_rope", "k_up", "v_up"
    with pytest.raises(ValueError, match=told):
        latent_decode_kernel(**dict(zip(names, inputs(1, 4, 8, 12, 4, 9))) | change)


def test_wider_latents_than_the_kernel_holds_are_refused():
    with pytest.raises(ValueError, match="latent must be 1 to 512 wide for this kernel; got 513"):
        latent_decode_kernel(*inputs(1, 1, 1, 513, 2, 1))
