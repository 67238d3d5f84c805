"""A pair of launches as a torch operator: functional, with fake tensors, autograd and `torch.compile`.

torch is imported when the first one is made.

    def forward(x: Tensor, scale: float) -> Tensor:           # annotated: torch reads the schema from it
        out = torch.empty_like(x)
        mod.scaled[grid, block](x, out, x.numel(), scale)
        return out

    def backward(grad, x, scale, out):                        # gradients, then inputs, then outputs
        ...
        return grad_x                                         # one for each name in `gradients`

    scaled = cuda.custom_op("scaled", forward, fake=lambda x, scale: torch.empty_like(x), backward=backward)"""
import sys
from collections.abc import Callable, Sequence


def custom_op(name: str, forward: Callable, *, fake: Callable, backward: Callable | None = None,
              gradients: Sequence[str] | None = None) -> Callable:
    # over the guide: the autograd functions close over what the operator is made of
    """The operator `laptop_cuda::<name>`, which calls `forward`; `mine::scaled` keeps its namespace.

    fake(*inputs)       outputs of the right shape, dtype and device, with nothing in them (`torch.empty...`)
    backward(*grads, *inputs, *outputs)
                        returns one tensor for each input named in `gradients` (default: each Tensor input);
                        it is an operator of its own, `<name>_backward`
    Tensors reach `forward`, `fake` and `backward` contiguous. Outputs must be new tensors, not views of
    inputs: wrap a kernel that works in place as clone, then launch.
    """
    import torch
    from torch import Tensor
    qualified = name if "::" in name else f"laptop_cuda::{name}"
    schema = torch.library.infer_schema(forward, mutates_args=())
    parsed = torch._C.parse_schema(qualified + schema)
    inputs = [a.name for a in parsed.arguments]
    tensors = [a.name for a in parsed.arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]
    op = _operator(qualified, schema, forward, fake)
    if backward is None:
        return op
    required = [a.name for a in parsed.arguments if str(a.type) == "Tensor"]
    wanted = list(gradients) if gradients is not None else required
    unknown = [n for n in wanted if n not in tensors]
    if unknown:
        raise ValueError(f"custom_op {name}: gradients names {unknown}, which are no Tensor inputs; "
                         f"those are {tensors}")
    back = _backward_op(qualified, parsed, backward, wanted)

    def setup(ctx, inputs, output):
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.plain = [None if isinstance(i, Tensor) else i for i in inputs]
        ctx.places = [n for n, i in enumerate(inputs) if isinstance(i, Tensor)]
        ctx.save_for_backward(*(inputs[n] for n in ctx.places), *outputs)

    def run_backward(ctx, *grads):
        saved = ctx.saved_tensors
        given = list(ctx.plain)
        for place, tensor in zip(ctx.places, saved):
            given[place] = tensor
        made = back(*grads, *given, *saved[len(ctx.places):])
        made = dict(zip(wanted, made if isinstance(made, (tuple, list)) else (made,)))
        answer = [made.get(n) if needed else None for n, needed in zip(inputs, ctx.needs_input_grad)]
        return answer[0] if len(answer) == 1 else tuple(answer)

    op.register_autograd(run_backward, setup_context=setup)
    return op


def _backward_op(qualified: str, parsed, backward: Callable, wanted: list[str]) -> Callable:
    """`backward` as an operator: gradients of outputs, inputs, outputs -> gradients of the `wanted`."""
    import torch
    grads = [f"Tensor grad_{n}" for n in range(len(parsed.returns))]
    outputs = [f"Tensor output_{n}" for n in range(len(parsed.returns))]
    inputs = [_declared(a) for a in parsed.arguments]
    arrow = "Tensor" if len(wanted) == 1 else f"({', '.join(['Tensor'] * len(wanted))})"
    schema = f"({', '.join(grads + inputs + outputs)}) -> {arrow}"
    places = [len(grads) + next(n for n, a in enumerate(parsed.arguments) if a.name == w) for w in wanted]

    def fake(*given):
        made = tuple(torch.empty_like(given[p]) for p in places)
        return made if len(made) > 1 else made[0]

    return _operator(f"{qualified}_backward", schema, backward, fake)


def _operator(qualified: str, schema: str, run: Callable, fake: Callable) -> Callable:
    import torch
    op = torch.library.custom_op(qualified, _contiguous(run), mutates_args=(), schema=schema)
    op.register_fake(_contiguous(fake))
    guarded, plain = op._backend_fns[None], _contiguous(run)
    # torch's guard against being traced loads its compiler, two seconds: only where that is there already
    op._backend_fns[None] = lambda *given, **named: (
        guarded if "torch._dynamo" in sys.modules else plain)(*given, **named)
    return op


def _declared(argument) -> str:
    spelled = str(argument.type)
    kinds = {"Optional[Tensor]": "Tensor?", "Optional[int]": "int?", "Optional[float]": "float?",
             "Optional[bool]": "bool?", "List[int]": "SymInt[]", "int": "SymInt"}
    return f"{kinds.get(spelled, spelled)} {argument.name}"


def _contiguous(function: Callable) -> Callable:
    from torch import Tensor

    def call(*given, **named):
        given = [g.contiguous() if isinstance(g, Tensor) else g for g in given]
        named = {n: g.contiguous() if isinstance(g, Tensor) else g for n, g in named.items()}
        return function(*given, **named)
    return call
