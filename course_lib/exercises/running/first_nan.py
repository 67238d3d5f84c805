"""Which operation made the first NaN of a result."""
import sys

from .values import has_nan
from .watch import OperationMode


class NanTracer(OperationMode):
    """Remember the first operation that makes a NaN out of inputs that hold none."""

    def __init__(self, filename: str):
        super().__init__()
        self.filename, self.found = filename, None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if (self.found is None and "empty" not in str(func) and has_nan(result)
            and not has_nan((args, kwargs))):
            frame, line = sys._getframe(1), None
            while frame and line is None:
                line = frame.f_lineno if frame.f_code.co_filename == self.filename else None
                frame = frame.f_back
            self.found = {"op": func.overloadpacket.__name__.rstrip("_"), "line": line}
        return result
