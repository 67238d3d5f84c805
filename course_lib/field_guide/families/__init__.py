"""The families: one function each, from a published configuration to the recipe of a layer."""
# noqa: F401 (each adds its families)
from course_lib.field_guide.families import full_and_window, latent, sparse, states
from course_lib.field_guide.families.registry import FAMILIES, Family, family

__all__ = ["FAMILIES", "Family", "family"]
