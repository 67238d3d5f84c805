"""`prove(kernel, sizes=..., grid=..., block=...)`: what holds of a kernel for every size, by libclang and z3."""
from .proof import Proof, prove

__all__ = ["Proof", "prove"]
