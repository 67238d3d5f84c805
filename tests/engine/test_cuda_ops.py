"""Launches as torch operators: opcheck, autograd against float64, `torch.compile`."""
import pytest
import torch
from torch import Tensor

import laptop_cuda as cuda

SOURCE = """
__global__ void scaled_square(const float* __restrict__ x, const float* __restrict__ w, float* y, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scale * x[i] * x[i] * w[i];
}
__global__ void scaled_square_backward(const float* __restrict__ grad, const float* __restrict__ x,
                                       const float* __restrict__ w, float* grad_x, float* grad_w, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { grad_x[i] = 2 * scale * grad[i] * x[i] * w[i]; grad_w[i] = scale * grad[i] * x[i] * x[i]; }
}
__global__ void twice_in_place(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
"""


@pytest.fixture(scope="module")
def op():
    mod = cuda.compile(SOURCE)

    def forward(x: Tensor, w: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        y = cuda.empty(x.shape)
        n = x.numel()
        mod.scaled_square[(n + 31) // 32, 32](x, w, y, n, scale)
        return y, y.sum(-1)

    def backward(grad_y, grad_sum, x, w, scale, y, total):
        grad = (grad_y + grad_sum[..., None]).contiguous()
        grad_x, grad_w = torch.empty_like(x), torch.empty_like(w)
        n = x.numel()
        mod.scaled_square_backward[(n + 31) // 32, 32](grad, x, w, grad_x, grad_w, n, scale)
        return grad_x, grad_w

    fake = lambda x, w, scale: (torch.empty_like(x), x.new_empty(x.shape[:-1]))
    return cuda.custom_op("test_square", forward, fake=fake, backward=backward)


def inputs(*shape):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for _ in range(2)]


def oracle(x, w, scale):
    y = scale * x.double() ** 2 * w.double()
    return y, y.sum(-1)


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (33,), (2, 31, 3)])
def test_values_and_gradients(op, shape):
    x, w = inputs(*shape)
    (y, total), (wanted_y, wanted_total) = op(x, w, 0.5), oracle(x, w, 0.5)
    torch.testing.assert_close(y.double(), wanted_y, atol=1e-6, rtol=1e-6)
    upstream = torch.linspace(-1, 1, y.numel()).reshape(shape)
    got = torch.autograd.grad((y * upstream).sum() + total.sum(), (x, w))
    want = torch.autograd.grad((wanted_y * upstream).sum() + wanted_total.sum(), (x, w))
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_only_the_gradients_that_are_needed(op):
    x, w = inputs(3, 5)
    y, _ = op(x, w.detach(), 0.5)
    y.sum().backward()                         # an expanded gradient, made contiguous for the kernel
    torch.testing.assert_close(x.grad, x.detach() * w.detach(), atol=1e-6, rtol=1e-6)


def test_opcheck(op):
    x, w = inputs(3, 5)
    transposed = torch.randn(5, 3).T.requires_grad_()
    for arguments in [(x, w, 0.5), (x.detach(), w.detach(), 2.0), (transposed, w, 0.5)]:
        assert set(torch.library.opcheck(op, arguments).values()) == {"SUCCESS"}


def test_compile_in_one_graph(op):
    def model(x, w):
        y, total = op(torch.sin(x), w, 0.5)
        return (y * 2).sum() + total.mean()
    x, w = inputs(3, 5)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, w), model(x, w))
    got = torch.autograd.grad(compiled(x, w), (x, w))
    for a, b in zip(got, torch.autograd.grad(model(x, w), (x, w))):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_compile_with_inductor(op):
    if " " in torch.__file__:
        pytest.skip("not run: inductor cannot compile where torch's own path has a space")
    x, w = inputs(3, 5)
    model = lambda x, w: (op(x * 2, w, 0.5)[0] + 1).sum()        # noqa: E731
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x, w), model(x, w))


@pytest.mark.slow
def test_one_gradient_out_of_two_inputs_and_no_backward_at_all():
    mod = cuda.compile(SOURCE)

    def forward(x: Tensor, index: Tensor) -> Tensor:
        y = x.clone()
        mod.twice_in_place[1, 32](y, y.numel())
        return y
    fake = lambda x, index: torch.empty_like(x)                  # noqa: E731
    op = cuda.custom_op("test_twice", forward, fake=fake, backward=lambda grad, x, index, y: grad * 2,
                        gradients=["x"])
    x = torch.arange(4.0).requires_grad_()
    index = torch.arange(4)
    assert set(torch.library.opcheck(op, (x, index)).values()) == {"SUCCESS"}
    op(x, index).sum().backward()
    assert x.grad.tolist() == [2] * 4
    plain = cuda.custom_op("test_twice_forward", forward, fake=fake)
    assert plain(x.detach(), index).tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="gradients names \\['z'\\]"):
        cuda.custom_op("test_twice_wrong", forward, fake=fake, backward=lambda *a: a[0], gradients=["z"])


def test_a_cell_run_again_replaces_its_operator():
    for factor in (2, 3):
        def forward(x: Tensor) -> Tensor:
            return x * factor
        op = cuda.custom_op("test_again", forward, fake=torch.empty_like,
                            backward=lambda grad, x, y: grad * factor)
        x = torch.ones(2, requires_grad=True)
        op(x).sum().backward()
        assert op(x).tolist() == [factor] * 2 and x.grad.tolist() == [factor] * 2
