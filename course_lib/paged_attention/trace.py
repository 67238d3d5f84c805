"""`python -m course_lib request-trace`: requests like those of a chat service, in data/request_trace.json.

Lengths are lognormal: most are short, a few are very long. Their means before truncation, 161 tokens of
prompt and 338 of output, are Kwon et al.'s (2023) for ShareGPT; spread and arrivals are chosen."""
import argparse
import json
import math
import random
from pathlib import Path
from typing import NamedTuple

from course_lib.checks import check_count
from course_lib.datasets import DATA
from course_lib.files import write_whole

FILE = Path(DATA) / "request_trace.json"


class Arrival(NamedTuple):
    step: int          # of arrival, in steps of the server
    prompt: int        # tokens
    output: int        # tokens it will generate; the server does not know this


def draw_trace(n=400, context=2048, gap=10, seed=0):
    """n requests that each fit into the context; on average one arrives every `gap` steps."""
    check_count("context", context, 64)         # in less, hardly any would fit
    rng, trace, now = random.Random(seed), [], 0.0
    while len(trace) < n:
        prompt = max(1, round(_lognormal(rng, mean=161, sigma=1.2)))
        output = max(1, round(_lognormal(rng, mean=338, sigma=0.9)))
        if prompt + output <= context:
            trace.append(Arrival(int(now), prompt, output))
            now += rng.expovariate(1 / gap)
    return trace


def load_trace(n=None, scale=1):
    """The first n requests of the committed trace, all lengths divided by scale (rounded up)."""
    rows = json.loads(FILE.read_text())["requests"][:n]
    return [Arrival(step, math.ceil(prompt / scale), math.ceil(output / scale))
            for step, prompt, output in rows]


def trace_command(argv):
    """python -m course_lib request-trace: draw the trace and write it."""
    parser = argparse.ArgumentParser(prog="python -m course_lib request-trace",
                                     description=trace_command.__doc__)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    rows = ",\n  ".join(json.dumps(arrival) for arrival in draw_trace(args.n, seed=args.seed))
    command = json.dumps(" ".join(["python -m course_lib request-trace", *argv]))
    write_whole(args.out, f'{{\n "command": {command},\n "columns": ["step", "prompt", "output"],\n'
                          f' "requests": [\n  {rows}\n ]\n}}\n')
    return 0


def _lognormal(rng, mean, sigma):
    return rng.lognormvariate(math.log(mean) - sigma ** 2 / 2, sigma)
