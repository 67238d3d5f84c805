"""Checks of one tensor: its shape, its number type, its device."""
import torch

from .values import check_equal, listed

KINDS = {"floating-point": torch.Tensor.is_floating_point,
         "boolean": lambda x: x.dtype == torch.bool,
         "integer": lambda x: not (x.dtype == torch.bool or x.is_floating_point() or x.is_complex())}


def check_tensor(name, x, shape=None, kind=None, advice=""):
    """x is a tensor of this kind and shape: each entry a size, or the name of a dimension of any size.

        check_tensor("x", x, ("batch", "n", 64), "floating-point")"""
    fits = isinstance(x, torch.Tensor) and (kind is None or KINDS[kind](x))
    if fits and shape is not None:
        fits = x.dim() == len(shape) and all(isinstance(want, str) or want == size
                                             for want, size in zip(shape, x.shape))
    if not fits:
        wanted = f"a tensor of {kind}s" if kind == "integer" else f"a {kind or ''} tensor".replace("  ", " ")
        if shape is not None:
            wanted += f" of shape ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        raise ValueError(f"{name} must be {wanted}; got {described(x)}{advice and '. ' + advice}")


def broadcasts(x, shape) -> bool:
    """Whether x broadcasts to this very shape; torch.broadcast_shapes brings in half a second of symbolic algebra to say it."""
    return x.dim() <= len(shape) and all(size in (1, want) for size, want in zip(x.shape[::-1], shape[::-1]))


def check_floating(name, x):
    check_tensor(name, x, kind="floating-point")


def check_axis(x, dim, scalar=False):
    """x is floating-point and dim one of its axes. scalar: x may have no axis; then dim is 0 or -1."""
    check_floating("x", x)
    axes = max(x.dim(), int(scalar))
    if axes == 0:
        raise ValueError("x must have at least one axis; got a scalar")
    if not -axes <= dim < axes:
        raise ValueError(f"dim must be an axis of x, from {-axes} to {axes - 1}; got {dim}")


def check_like(name, x, like_name, like):
    """x has the dtype and the device of another tensor."""
    check_equal(name, f"have the dtype of {like_name}", x.dtype, like.dtype)
    check_equal(name, f"be on the device of {like_name}", x.device, like.device)


def check_dtype(name, x, *dtypes, where="for this kernel"):
    if x.dtype not in dtypes:
        names = listed(dtypes).replace("torch.", "")
        raise ValueError(f"{name} must be {names} {where}; got {str(x.dtype).replace('torch.', '')}")


def check_integers(name, values, shape, least=0, most=None, device=None) -> torch.Tensor:
    """values, a list or a tensor, as a tensor of integers of this shape, all from least to most."""
    x = torch.as_tensor(values, device=device)
    empty = isinstance(values, (list, tuple)) and x.numel() == 0        # torch makes a float tensor of []
    check_tensor(name, x.long() if empty else x, shape, "integer")
    if x.numel() and (x.min() < least or most is not None and x.max() > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {limits}; got values from {x.min().item()} to {x.max().item()}")
    return x.long() if empty else x


def check_shared_memory(name, what, need, limit, advice=""):
    """A block of threads needs `need` bytes of shared memory, for `what`: say "2 heads of 64"."""
    if need > limit:
        raise ValueError(f"{name} needs too much shared memory: {what} take {need:,} bytes per block, "
                         f"the limit is {limit:,}{advice and '. ' + advice}")


def check_tensor_cores(fits, wanted, q, v, scale=1.0):
    """fits: whether a kernel for tensor cores takes these. wanted: which q it takes, in words."""
    if not fits:
        raise ValueError(f"q must be {wanted}, v of the same width and scale above 0, for the tensor cores; "
                         f"got {q.dtype}, widths {q.shape[-1]} and {v.shape[-1]}, scale {scale:g}")


def described(x) -> str:
    """torch.float32 of shape (2, 3); or the type, if x is not a tensor."""
    return f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
