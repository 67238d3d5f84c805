"""Mutated kernels: whatever is wrong with a kernel, the engine answers with a result or an error, and Python lives.

The correct kernels of test_clean.py are damaged at random (a constant, an operator, an index, a missing barrier) and
run sanitized and profiled in a child process. COURSE_FUZZ_KERNELS sets how many; the seed of a death is reported.
"""
import os
import random
import re
import subprocess
import sys

import pytest

STEPS = 1_000_000       # many times what the undamaged kernels take: an endless loop ends at once
KERNELS = int(os.environ.get("COURSE_FUZZ_KERNELS", "100"))
SWAPS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
         "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+=": "=", "++": "--", "<<": ">>", ">>": "<<",
         "&": "|", "^": "+"}
INTERESTING = ["0", "1", "-1", "2", "31", "32", "33", "64", "1000", "100000", "2147483647", "-2147483648"]
TOKEN = re.compile(
    r"//[^\n]*|\"(?:\\.|[^\"])*\"|[A-Za-z_]\w*|\d[\w.]*|<<<|>>>|[-+*/%<>=!&|^]=?|&&|\|\||\+\+|--|.|\n", re.S)


def mutate(source: str, random: random.Random) -> str:
    """One change somewhere in the bodies of the kernels."""
    start = source.index("__global__")
    head, tokens = source[:start], TOKEN.findall(source[start:])
    for _ in range(1000):
        at = random.randrange(len(tokens))
        token = tokens[at]
        if token in SWAPS and random.random() < 0.7:
            tokens[at] = SWAPS[token]
        elif re.fullmatch(r"\d+", token):
            tokens[at] = random.choice(INTERESTING)
        elif token in ("__syncthreads", "__syncwarp") and tokens[at + 1:at + 3] == ["(", ")"]:
            tokens[at:at + 3] = ["(", "void", ")", "0"]
        elif token in ("threadIdx", "blockIdx", "blockDim", "gridDim") and random.random() < 0.3:
            tokens[at] = random.choice(["threadIdx", "blockIdx", "blockDim", "gridDim"])
        elif token in ("i", "j", "k", "t", "x", "y", "tx", "ty", "n", "lane", "row",
                       "col") and random.random() < 0.3:
            tokens[at] = random.choice(["i", "j", "k", "t", "n", "tx", "ty", "lane", "row", "col", "0"])
        if (changed := head + "".join(tokens)) != source:
            return changed
    return source


def child(seed: int, kernels: int) -> None:
    """Damages so many kernels and runs those that still compile; says what it is about to do before it does."""
    import test_clean
    import torch

    import laptop_cuda as cuda
    torch.set_num_threads(1)
    chance, compiled, launched, errors = random.Random(seed), 0, 0, {}
    for _ in range(kernels):
        case = chance.choice(list(test_clean.CASES))
        run = test_clean.CASES[case]()
        source = alone(test_clean.SOURCE, run.kernel.partition("<")[0])
        for _ in range(chance.choice((1, 1, 2, 3))):
            source = mutate(source, chance)
        print(f"next {case}\n{source}", file=sys.stderr, flush=True)
        try:
            with cuda.sanitize():                # builds only what is run
                mod = cuda.compile(source)
        except cuda.CompileError:
            continue
        compiled += 1
        order = chance.choice(("forward", "reverse", "seeded"))
        for context in (cuda.sanitize(order=order, step_limit=STEPS), cuda.profile(step_limit=STEPS)):
            run = test_clean.CASES[case]()
            try:
                with context:
                    mod[run.kernel][run.grid, run.block, run.shared](*run.args)
                launched += 1
            except (cuda.KernelError, cuda.CompileError, cuda.ArgumentError) as error:
                kind = getattr(error, "kind", "compile error")
                errors[kind] = errors.get(kind, 0) + 1
    print(f"{compiled} kernels compiled, {launched} launches ended well, errors: {errors}")


def alone(source: str, kernel: str) -> str:
    """The source without the other kernels: one damaged line is one damaged kernel, built quickly."""
    from laptop_cuda.text.outline import outline
    whole = outline(source)
    for f in reversed(whole.functions):
        if "__global__" in f.qualifiers and f.name != kernel:
            source = source[:whole.tokens[f.first].start] + source[whole.tokens[f.body[1]].end:]
    return source


@pytest.mark.slow
def test_python_survives_damaged_kernels():
    seed = os.environ.get("COURSE_FUZZ_SEED", "1")
    done = subprocess.run([sys.executable, __file__, seed, str(KERNELS)], capture_output=True, text=True,
                          errors="replace", timeout=300 + 10 * KERNELS)
    assert done.returncode == 0, f"seed {seed} ended with status {done.returncode}\n{done.stderr[-6000:]}"
    print(done.stdout)
    assert int(done.stdout.split()[0]) > KERNELS / 4


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    child(int(sys.argv[1]), int(sys.argv[2]))
