"""Attention, from the math to the metal: the library behind the notebooks."""
import sys

# jsonschema, which nbformat imports, compiles a grammar of addresses where it finds this: a second of each process.
sys.modules.setdefault("rfc3987_syntax", None)
