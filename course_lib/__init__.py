"""Attention, from the math to the metal: the library behind the notebooks."""
