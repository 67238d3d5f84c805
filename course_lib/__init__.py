"""Attention, from the math to the metal: the library behind the notebooks."""
import sys

# With this nbformat's import of jsonschema compiles a grammar of addresses: a second of each process.
sys.modules.setdefault("rfc3987_syntax", None)
