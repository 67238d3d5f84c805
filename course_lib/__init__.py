"""Attention, from the math to the metal: the library behind the notebooks."""
import os
import sys

# With this nbformat's import of jsonschema compiles a grammar of addresses: a second of each process.
sys.modules.setdefault("rfc3987_syntax", None)

# torch's threads sleep while they wait for each other. Left to themselves they spin, and where something else
# uses the cores too, a text of one second takes ten. This is read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
