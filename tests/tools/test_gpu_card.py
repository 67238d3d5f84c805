"""What only a card can show: the same bits twice, streams and graphs, large tensors, a second device."""
import pytest
import torch

from course_lib.attention import softmax_kernel
from course_lib.field_guide import open_model
from course_lib.field_guide.whole.tiny import tiny
from course_lib.flash_attention.kernels import backward_kernels, forward_kernel
from course_lib.gpu.case import TOLERANCE, as_tuple, relative
from course_lib.gpu.cases import CASES, BF16, case_of
from course_lib.gpu.cases.w2_attention import exact
from course_lib.w2_attention.kernels import w2_attention_kernel, w2_flash_attention

TENSOR_CORES = [case for case in CASES if case.tensor_cores and case.large]
needs_tensor_cores = pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability()
                                        < (8, 0), reason="not run: it needs a GPU from sm_80 on")


@pytest.mark.gpu
@needs_tensor_cores
@pytest.mark.parametrize("case", TENSOR_CORES, ids=lambda case: case.name)
def test_the_same_bits_in_every_run(case):
    shape = case.large[0]
    if why := case.unfit(shape, "cuda"):
        pytest.skip(why)
    arguments = case.arguments(shape, "cuda", 3)
    first = as_tuple(case.run(*arguments))
    for _ in range(10):
        assert all(torch.equal(a, b) for a, b in zip(first, as_tuple(case.run(*arguments)), strict=True))


@pytest.mark.gpu
@needs_tensor_cores
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_fused_form_of_w2_takes_the_tensor_cores(dtype):
    case = case_of("flash_tensor_core", dtype, "W2")
    *inputs, tau, causal = case.arguments(case.large[0], "cuda", 1)
    leaves = [x.requires_grad_() for x in inputs]
    got = w2_flash_attention(*leaves, tau, causal)
    wide = [x.detach().double().cpu().requires_grad_() for x in inputs]
    want = exact(*wide, tau.double().cpu(), causal)
    assert relative(got, want.detach()) < TOLERANCE[dtype]
    assert relative(w2_attention_kernel(*inputs, tau, causal, rung=3), want.detach()) < TOLERANCE[dtype]
    for mine, right in zip(torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(want.sum(), wide)):
        assert relative(mine, right) < 2 * TOLERANCE[dtype]


@pytest.mark.gpu
@needs_tensor_cores
def test_more_than_two_to_the_31_elements():
    """Offsets of heads are 64 bits wide: the last head of 4.3 GB of q is as right as the first."""
    q, k, v = (torch.randn(1, heads, n, 128, device="cuda", dtype=BF16)
               for heads, n in ((132, 2**17), (132, 64), (132, 64)))
    out, lse = forward_kernel(q, k, v, rung=7)
    alone, alone_lse = forward_kernel(q[:, -1:], k[:, -1:], v[:, -1:], rung=7)
    assert q.numel() > 2**31 and torch.equal(out[:, -1:], alone) and torch.equal(lse[:, -1:], alone_lse)
    x = torch.randn(2**19 + 1, 4096, device="cuda", dtype=torch.float16)
    assert torch.equal(softmax_kernel(x)[-3:], softmax_kernel(x[-3:].contiguous()))


@pytest.mark.gpu
@needs_tensor_cores
def test_a_stream_and_a_graph():
    q, k, v = (torch.randn(2, 4, 300, 64, device="cuda", dtype=BF16) for _ in "qkv")
    want = forward_kernel(q, k, v, True, rung=7)
    grad = torch.randn_like(want[0])
    wants = backward_kernels(grad, q, k, v, *want, True, rung=7)[:3]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = q * 2 / 2  # on this stream: a launch on another would come too early
        got = forward_kernel(late, k, v, True, rung=7)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(got[0], want[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = forward_kernel(q, k, v, True, rung=7)
        grads = backward_kernels(grad, q, k, v, out, lse, True, rung=7)[:3]
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want[0]) and all(torch.equal(a, b) for a, b in zip(grads, wants))


@pytest.mark.gpu
def test_a_second_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("not run: there is one CUDA device")
    x = torch.randn(33, 264)
    assert torch.equal(softmax_kernel(x.to("cuda:1")).cpu(), softmax_kernel(x.to("cuda:0")).cpu())


@pytest.mark.gpu
def test_a_model_on_the_course_s_kernels_says_the_same(tmp_path):
    family, prompts = tiny("llama"), [[5, 9, 12], [7] * 20, [3]]
    model = open_model(family.write(tmp_path), kernels=True, device="cuda")
    assert model.generate(prompts, 8) == open_model(tmp_path).generate(prompts, 8) and model.kernels["attention"]
