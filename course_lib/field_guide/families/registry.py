"""Where a family is entered: its recipe, and how its published weights are called."""
from dataclasses import dataclass, field
from typing import Callable

FAMILIES: dict[str, "Family"] = {}


@dataclass
class Family:
    """One model_type. `recipe(config, layer)` is the difference; the rest is for copying its weights."""
    model_type: str
    recipe: Callable
    names: dict = field(default_factory=dict)       # published name: ours, by whole name or by its beginning
    plus_one: tuple = ()                            # normalisations that are stored as the factor minus one
    # (weights, recipe) -> weights, where several are stored as one
    split: Callable | None = None
    about: str = ""

    @property
    def lines(self) -> int:
        """Lines of the function that is the difference, without its docstring and decorator."""
        import inspect
        source = inspect.getsource(self.recipe).splitlines()
        body = [line for line in source if line.strip() and not line.strip().startswith(("@", "#"))]
        doc = (self.recipe.__doc__ or "").splitlines()
        return len(body) - len([line for line in doc if line.strip()])


def family(*model_types: str, names=None, plus_one=(), split=None):
    """Enter a recipe under one or more model_types."""
    def enter(recipe):
        about = " ".join((recipe.__doc__ or "").split())
        for model_type in model_types:
            FAMILIES[model_type] = Family(
                model_type, recipe, {"o_proj": "out_proj", **(names or {})}, plus_one, split, about)
        return recipe
    return enter
