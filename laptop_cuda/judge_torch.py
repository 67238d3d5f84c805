"""References that ask for device="cuda", run on the CPU: the device is replaced where torch is called."""
from __future__ import annotations

from contextlib import contextmanager

from . import arrays


def _is_cuda(device) -> bool:
    return str(device).startswith("cuda")


def _mode(torch):
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            name = getattr(function, "__name__", "")
            if name == "cuda":                              # x.cuda()
                return args[0]
            if name == "__get__" and function is torch.Tensor.is_cuda.__get__:
                return True
            if _is_cuda(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if name == "to":                                # x.to("cuda")
                args = tuple("cpu" if isinstance(a, (str, torch.device)) and _is_cuda(a) else a for a in args)
            return function(*args, **kwargs)

    return OnCpu()


@contextmanager
def on_cpu():
    """Inside, torch's factories take "cuda" for "cpu". Without torch it does nothing."""
    torch = arrays.torch_if_installed()
    if torch is None or torch.cuda.is_available():
        yield
        return
    generator, synchronize = torch.Generator, torch.cuda.synchronize

    class Generator(generator):
        def __new__(cls, device="cpu"):
            return generator.__new__(cls, "cpu" if _is_cuda(device) else device)

    torch.Generator = Generator
    torch.cuda.synchronize = lambda *_: None
    try:
        with _mode(torch):
            yield
    finally:
        torch.Generator, torch.cuda.synchronize = generator, synchronize
