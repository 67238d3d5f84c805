"""Reading data/w2_audit.json: means with intervals, paired differences, the loss at every rate."""
import json
import math
from statistics import mean, stdev

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from course_lib import datasets
from course_lib.datasets import repeated_tokens
from course_lib.studies.w2_audit_models import AuditModel
from course_lib.studies.w2_audit_plan import EQUAL_W2, PUBLIC
from course_lib.studies.w2_audit_public import PublicModel
from course_lib.studies.w2_audit_tasks import BATCH, next_token_losses, train


# title of a task's panel: the task, and what is measured
PANELS = {"copying": ("fair", "loss"), "MQAR": ("mqar", "loss"), "noisy keys": ("noisy", "loss"),
          "hierarchy": ("hierarchy", "auc")}
PUBLISHED_PANEL = "the published task"


def results(path=None):
    """What the audit found: data/w2_audit.json."""
    return json.loads((path or datasets.DATA / "w2_audit.json").read_text())


def seconds(one):
    """What a run took: processor time, or for the runs of the first edition the time on the clock."""
    return one.get("cpu_seconds", one.get("seconds"))


def finals(audit, task, stage="final"):
    """{(arm, rate): [runs]} of a task, in one stage."""
    groups = {}
    for one in audit["runs"].values():
        s = one["settings"]
        if s["task"] == task and s["stage"] == stage:
            groups.setdefault((s["arm"], s["rate"]), []).append(one)
    return groups


def by_rate(audit, task, arm, measure="loss", stages=("sweep",), seed=0):
    """[(rate, [value])] of an arm with one seed, in the order of the rates."""
    found = {}
    for one in audit["runs"].values():
        s = one["settings"]
        if (s["task"], s["arm"], s["seed"]) == (task, arm, seed) and s["stage"] in stages:
            found.setdefault(s["rate"], []).append(one[measure])
    return sorted(found.items())


def arms(audit, task, stage):
    """The arms of a task that were run in a stage, in their order in the file."""
    settings = (one["settings"] for one in audit["runs"].values())
    return list(dict.fromkeys(s["arm"] for s in settings if (s["task"], s["stage"]) == (task, stage)))


def rate_panels(audit):
    """{title: {arm: [(rate, [value])]}} with seed 0: all arms of the sweeps and of the public task."""
    panels = {}
    for title, (task, measure) in PANELS.items():
        for arm in arms(audit, task, "sweep"):
            name = title + ", tied" * arm.endswith("tied")
            panels.setdefault(name, {})[arm] = by_rate(audit, task, arm, measure)
    panels[PUBLISHED_PANEL] = {arm: by_rate(audit, "published", arm, stages=("final",))
                               for arm in arms(audit, "published", "final")}
    return panels


def student(freedom, level=0.95):
    """The t for which mean ± t s / sqrt(n) covers `level` of all draws, n - 1 = freedom; Simpson's rule."""
    factor = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))

    def covered(t, pieces=2000):
        at = [(i * t / pieces, 4 if i % 2 else 2 - (i in (0, pieces))) for i in range(pieces + 1)]
        total = sum(w * (1 + x * x / freedom) ** (-(freedom + 1) / 2) for x, w in at)
        return 2 * factor * t / pieces / 3 * total

    low, high = 0.0, 100.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if covered(middle) < level else (low, middle)
    return high


def interval(values, comparisons=1):
    """(mean, half of Student's 95 % interval); with Bonferroni's correction for several comparisons."""
    n = len(values)
    half = student(n - 1, 1 - 0.05 / comparisons) * stdev(values) / math.sqrt(n) if n > 1 else None
    return mean(values), half


def summary(audit, task, measure="loss"):
    """A row for each arm: mean of the final runs, half of Student's 95 % interval, number of seeds."""
    rows = []
    for (arm, rate), runs in finals(audit, task).items():
        middle, half = interval([one[measure] for one in runs])
        rows.append({"arm": arm, "rate": rate, "mean": middle, "half_width": half, "seeds": len(runs),
                     "parameters": runs[0]["parameters"]})
    return rows


def seeded(audit, task, arm, measure="loss", stage="final"):
    """The runs of an arm in a stage, in the order of their seeds: two arms can be compared run by run.
    "w2" is the W2 that has softmax's parameters."""
    arm = EQUAL_W2.get(task, arm) if arm == "w2" else arm
    runs = [one for (name, _), found in finals(audit, task, stage).items() if name == arm for one in found]
    return [one[measure] for one in sorted(runs, key=lambda one: one["settings"]["seed"])]


def step_cost(arm):
    """(GFLOP in matrix products, millions of pairs times features) of one step, forward and backward."""
    score, width, heads = next(each[:3] for each in PUBLIC if f"{each[0]} {each[1]}" == arm)
    model = PublicModel(1024, width, 4 * width, heads, score)
    with FlopCounterMode(display=False) as counter:
        next_token_losses(model, torch.Generator().manual_seed(0))[0].backward()
    pairs = 0 if score != "overlap" else 2 * BATCH * 127**2 * width         # in each of two layers
    return counter.get_total_flops() / 1e9, pairs / 1e6


def five_second_slice(steps=100):
    """The public benchmark, small (vocabulary 64, twice 16 tokens, width 32): {(mechanism, rate): loss}.

    Softmax at both learning rates, W2 at the one it was given; the loss is the mean of the last 20 steps
    over the half that can be predicted, ln 64 = 4.16 for a blind guess. Torch's generator is left as it was.
    """
    def losses_of(model, generator):
        tokens = repeated_tokens(16, generator, vocab_size=64, n=16)
        at = torch.arange(15, 31).expand(16, -1)
        return F.cross_entropy(model(tokens[:, :-1], at).flatten(0, 1), tokens[:, 16:].flatten())[None]

    found = {}
    for mechanism, rate in (("softmax", 1e-3), ("softmax", 5e-3), ("w2", 5e-3)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AuditModel(64, 64, 32, 128, 2, mechanism)
        found[mechanism, rate] = train(model, rate, losses_of, steps, seed=0)[-20:].mean().item()
    return found


