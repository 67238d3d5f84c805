"""What a layer's cache costs: bytes kept, bytes read and FLOPs for one more token."""
from course_lib.field_guide.state import StateRecipe

LENGTHS = {"8k": 8192, "128k": 131072, "1M": 1048576}


def number_bytes(recipe, bytes: int = 2) -> int:
    """States are kept in float32, since every token adds to them; all else in `bytes` bytes per number."""
    return 4 if isinstance(recipe, StateRecipe) else bytes


def kept_bytes(recipe, tokens: int, bytes: int = 2) -> int:
    """Of one sequence after so many tokens, in one layer."""
    return recipe.kept(tokens) * number_bytes(recipe, bytes)


def read_bytes(recipe, tokens: int, bytes: int = 2) -> int:
    """What the last of so many tokens reads of them."""
    return recipe.read(tokens) * number_bytes(recipe, bytes)


def step_flops(recipe, tokens: int) -> int:
    """What one more token costs in all that mixes tokens, without projections, norms and exponentials."""
    return recipe.flops(tokens)


def bytes_per_token(recipe, bytes: int = 2) -> float:
    """What one more token adds to a long text's cache."""
    far = 2**20
    return (kept_bytes(recipe, 2 * far, bytes) - kept_bytes(recipe, far, bytes)) / far


def in_words(count: float) -> str:
    """1536 as 1.5 KiB, with three digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000 or unit == "GiB":
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:,.0f} {unit}"
        count /= 1024


def in_flops(count: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000 or unit == "T":
            return f"{count:.3g} {unit}FLOP"
        count /= 1000
