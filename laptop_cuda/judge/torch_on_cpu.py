"""References that ask for device="cuda", run on the CPU: the device is replaced where torch is called.

What torch.empty made, and nothing has written since, is remembered: it promises no values. So are the
functions that drew random numbers: a GPU draws others from the same seed."""
import re
from contextlib import contextmanager

from ..arguments import arrays

EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
RANDOM = re.compile(r"(?:rand|randn|randint)(?:_like)?|randperm|multinomial|normal|bernoulli|\w*dropout|"
                    r"(?:bernoulli|cauchy|exponential|geometric|log_normal|normal|random|uniform)_")
IN_PLACE = re.compile(r".*[^_]_|__(?:setitem|i[a-z]+)__|numpy")   # numpy: through what it returns


def _is_cuda(device) -> bool:
    return str(device).startswith("cuda")


class Unset:
    """Tensors without values. They are kept, so that no other takes their address."""

    def __init__(self):
        self.tensors = {}
        self.drawn = set()               # the functions that drew random numbers

    def __contains__(self, value) -> bool:
        return arrays.is_tensor(value) and value.untyped_storage().data_ptr() in self.tensors

    def add(self, value) -> None:
        if arrays.is_tensor(value) and value.numel():
            self.tensors[value.untyped_storage().data_ptr()] = value

    def discard(self, value) -> None:
        if value in self:
            del self.tensors[value.untyped_storage().data_ptr()]


def _mode(torch, unset: Unset, replace: bool):
    from torch.overrides import TorchFunctionMode

    def on_the_cpu(function, name, args, kwargs):
        if name == "cuda":                                  # x.cuda()
            return args[0]
        if name == "__get__" and function is torch.Tensor.is_cuda.__get__:
            return True
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if name == "to":                                    # x.to("cuda")
            args = tuple("cpu" if isinstance(a, (str, torch.device)) and _is_cuda(a) else a for a in args)
        return function(*args, **kwargs)

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            name = getattr(function, "__name__", "")
            written = [kwargs.get("out")]
            if IN_PLACE.fullmatch(name):
                written += [*args[:1], kwargs.get("tensor")]
            for tensor in written:
                unset.discard(tensor)
            made = on_the_cpu(function, name, args, kwargs) if replace else function(*args, **kwargs)
            if RANDOM.fullmatch(name):
                unset.drawn.add(name)
            if name in EMPTY:
                unset.add(made)
            return made

    return OnCpu()


@contextmanager
def on_cpu():
    """Inside, torch's factories take "cuda" for "cpu". Gives the tensors made without values."""
    torch, unset = arrays.torch_if_installed(), Unset()
    if torch is None:
        yield unset
        return
    if torch.cuda.is_available():
        with _mode(torch, unset, False):
            yield unset
        return
    generator, synchronize = torch.Generator, torch.cuda.synchronize

    class Generator(generator):
        def __new__(cls, device="cpu"):
            return generator.__new__(cls, "cpu" if _is_cuda(device) else device)

    torch.Generator = Generator
    torch.cuda.synchronize = lambda *_: None
    try:
        with _mode(torch, unset, True):
            yield unset
    finally:
        torch.Generator, torch.cuda.synchronize = generator, synchronize
