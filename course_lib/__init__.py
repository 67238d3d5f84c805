"""Attention, from the math to the metal: the library behind the notebooks."""
import os
import sys

# With this nbformat's import of jsonschema compiles a grammar of addresses: a second of each process.
sys.modules.setdefault("rfc3987_syntax", None)

# torch's threads wait for each other in a loop, and where something else uses the cores too, a step of
# training of 0.1 s takes 1.7. After a tenth of the usual turns they sleep: 0.3 s then, and 0.1 on idle cores.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
