"""Checks of counts, numbers and choices."""
import math


def check_count(name, value, least=1, most=None, even=False, optional=False):
    """value is an integer (True and False are none) from least to most; None too, if it is optional."""
    if optional and value is None:
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or most is not None and value > most or even and value % 2:
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        kind = f"{'None or ' if optional else ''}an {'even ' if even else ''}integer"
        raise ValueError(f"{name} must be {kind} {limits}; got {value!r}")


def check_sizes(least=1, **sizes):
    for name, size in sizes.items():
        check_count(name, size, least)


def check_number(name, value, least=None, above=None, most=None):
    """value is a finite number within the limits."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not real or (least is not None and value < least) or (above is not None and value <= above) \
            or (most is not None and value > most):
        words = ("of at least", least), ("above", above), ("of at most", most)
        limits = [f" {word} {limit}" for word, limit in words if limit is not None]
        raise ValueError(f"{name} must be a finite number{' and'.join(limits)}; got {value!r}")


def check_dropout(dropout):
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability, between 0 and 1; got {dropout!r}")


def check_scale(scale):
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be None or a finite number; got {scale}")


def check_choice(name, value, choices, where=""):
    if value not in tuple(choices):
        raise ValueError(f"{name} must be {listed(choices)}{where and ' ' + where}; got {value!r}")


def check_equal(name, what, value, wanted):
    """what continues "must": `check_equal("k", "have the head_dim of q", 32, 64)`."""
    if value != wanted:
        raise ValueError(f"{name} must {what}, {wanted}; got {value}")


def check_multiple(name, value, of_name, of):
    """Both are positive integers and value is a multiple of the other."""
    check_sizes(**{of_name: of, name: value})
    if value % of:
        raise ValueError(f"{name} must be a multiple of {of_name}; got {value} and {of}")


def listed(choices) -> str:
    """1, 2 or 3; "interleaved" or "half"."""
    *others, last = (f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in choices)
    return f"{', '.join(others)} or {last}" if others else last
