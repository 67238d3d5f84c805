"""Ways to a low loss without learning, or without paying: cells of the league's training problem."""
from course_lib.teaching.league.model import PAR


def changed(*pairs: tuple[str, str], before: str = "") -> str:
    made = PAR
    for old, new in pairs:
        assert old in made
        made = made.replace(old, new)
    return before + made


RETURN = "    return hidden @ p[\"out\"]\n"
EMBED = "    x = p[\"embed\"].rows(tokens)\n"
# no score at all
REFUSED = {
    "hands in a loss instead of a program": changed(before="league.trace = lambda *a: {'loss': 0.0, 'flops': 1}\n"),
    "hands in a score as tensors": changed(before="import torch\nleague.trace = lambda *a: torch.zeros(4)\n"),
    "makes up an operation": changed((RETURN, "    return hidden._new('answers', (BATCH, n, league.VOCAB))\n")),
    "uses an operation that is ours alone": changed(
        (RETURN, "    return (hidden @ p['out'])._new('pad', (BATCH, n, league.VOCAB), (), [1, 0, 0])\n")),
    "takes a result that comes later": changed((RETURN, "    made = hidden @ p['out']\n"
                                                        "    made.program[-1][1] = [10 ** 6]\n    return made\n")),
    "reads the answers' place": changed((RETURN, "    made = hidden @ p['out']\n    made.place += 1\n    return made\n")),
    "a table learnt at home as constants": changed(
        (RETURN, "    made = hidden @ p['out']\n    for i in range(200):\n        made = made + i * 0.001\n"
                 "    return made\n")),
    "a table of megabytes in the cell": changed(before="TABLE = '" + "x" * 40_000 + "'\n"),
    "a table as the starts of parameters": changed(
        ("    return {\"embed\"", "    more = {str(i): league.uniform((1,), 0.0, i / 7) for i in range(60)}\n"
                                  "    again = {'b' + str(i): league.uniform((1,), 0.0, i / 9) for i in range(60)}\n"
                                  "    return more | again | {\"embed\"")),
    "an array as the start of a parameter": changed(
        ("league.uniform((HIDDEN,), 0.0)", "((HIDDEN,), torch.ones(HIDDEN), 0.0)"), before="import torch\n"),
    "asks the course for the questions": changed(
        before="import importlib\nmade = importlib.import_module('course' + '_lib.teaching.league.language').data(5)\n"),
    "reads the course's files": changed(
        before="open(league.__file__.replace('tensors', 'language')).read()\n"),
    "works in numpy": changed((RETURN, "    return np.zeros((BATCH, n, league.VOCAB))\n"), before="import numpy as np\n"),
    "works in torch": changed((RETURN, "    return torch.zeros(BATCH, n, league.VOCAB)\n"), before="import torch\n"),
    "works in ctypes": changed(
        (RETURN, "    return ctypes.cast(id(tokens), ctypes.POINTER(ctypes.c_float))\n"), before="import ctypes\n"),
    "works in whole numbers of Python": changed((RETURN, "    return [[0] * league.VOCAB for _ in range(n)]\n")),
    "works in a compiled kernel": changed(
        (RETURN, "    made = hidden @ p['out']\n    cuda.compile('__global__ void f(float* x) {}').f[1, 1](made)\n"
                 "    return made\n"), before="import laptop_cuda as cuda\n"),
    "works in a hook": changed(
        (RETURN, "    made = hidden @ p['out']\n    made.register_hook(lambda g: g * 0)\n    return made\n")),
    "a tensor that is a Python object": changed((EMBED, "    x = p['embed'].rows(type('T', (), dict("
                                                        "shape=(BATCH, LENGTH), place='answers'))())\n")),
    "not a number": changed(("0.5)", "float('nan'))")),
    "infinite weights": changed((RETURN, "    return hidden @ p['out'] * 1e30 * 1e30\n")),
    "ends the process": changed((RETURN, "    __import__('os')._exit(0)\n")),
    "one step above the budget": changed(("HIDDEN, BEFORE = 16, 64, 4", "HIDDEN, BEFORE = 512, 1024, 24"),
                                         ("LENGTH, STATES = 64, 32", "LENGTH, STATES = 256, 64")),
    "shapes of terabytes": changed((RETURN, "    big = hidden.sum(1).expand((BATCH, 1 << 30, HIDDEN))\n"
                                            "    return big @ p['out']\n")),
    "a batch of nothing": changed(("BATCH, LENGTH, STATES = 64", "BATCH, LENGTH, STATES = 0")),
    "a batch of minus one": changed(("BATCH, LENGTH, STATES = 64", "BATCH, LENGTH, STATES = -64")),
    "more operations than one may": changed((RETURN, "    made = hidden @ p['out']\n    for _ in range(3000):\n"
                                                     "        made = made.maximum(made)\n    return made\n")),
}
# a score, which is an honest one: nothing is saved
NOTHING_GAINED = {
    "lowers the prices in its process": changed(before="""
import sys, types
for name in ("rule", "operators", "program", "training"):
    sys.modules["course_lib.teaching.league." + name] = types.SimpleNamespace(BUDGET=10**15, price=lambda *a: 0)
"""),
    "starts a thread": changed(before="import threading\nthreading.Thread(target=lambda: 10**9).start()\n"),
    "works while it is defined": changed(before="import torch\nhome = torch.ones(300, 300) @ torch.ones(300, 300)\n"),
    "lies about shapes in its process": changed((RETURN, "    made = hidden @ p['out']\n    hidden.shape = (1,)\n"
                                                         "    return made\n")),
    "keeps something for the next run": changed(before="open('kept', 'a').write('x')\n"
                                                       "assert len(open('kept').read()) == 1\n"),
}
# sees in training what it is to predict: the last symbol of a question has its answer nowhere in the input
PEEKS = changed(
    ("    n = LENGTH - BEFORE + 1\n" + EMBED, "    n = LENGTH - BEFORE + 1\n    seen = tokens.slice(1, 1, LENGTH).join("
     "[tokens.slice(1, LENGTH - 1, LENGTH)], 1)\n    x = p[\"embed\"].rows(seen)\n"))
