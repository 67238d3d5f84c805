"""`python -m course_lib w2-audit`: chapter 9's audit of W2 attention. Writes data/w2_audit.json.

Every run is known by its settings and written as soon as it is done: an interrupted audit goes on where it stopped.
Each task is first swept over learning rates; the best rate is then run with seeds that the sweep has not seen.
"""
import argparse
import json
import math
import multiprocessing
import os
import platform
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from statistics import mean, stdev

import torch
from torch.nn import functional as F

from course_lib import datasets
from course_lib.attention import scaled_dot_product_attention
from course_lib.datasets import repeated_tokens
from course_lib.w2_attention import gaussian_overlap, w2_attention
from course_lib.studies.w2_audit_models import AuditModel, attend, equal_hidden, parameters
from course_lib.studies.w2_audit_tasks import BATCH, FLOOR, START_STD, noisy_rules, run, train

FINAL_SEEDS = range(100, 105)
# The cells of the public table, headline first, then those it left out: "w2" was described, "overlap" was scored.
PUBLISHED = [("w2", 64, 5e-3), ("softmax", 96, 1e-3), ("softmax", 64, 5e-3), ("w2", 96, 1e-3), ("overlap", 64, 5e-3),
             ("softmax", 96, 5e-3), ("w2", 64, 1e-3), ("softmax", 64, 1e-3), ("w2", 96, 5e-3)]
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262}       # Student's t, 97.5 %, by degrees of freedom


def arms(width, hidden, mechanisms=("softmax", "w2", "overlap")):
    """Equal parameters: what the wider projections cost is taken from the feed-forward."""
    return {name: {"mechanism": name, "width": width, "hidden": equal_hidden(width, hidden, name)}
            for name in mechanisms}


# task: what is shared, the arms, the learning rates and seeds of the sweep, the seeds of the final runs
SWEPT = {
    "fair": ({"heads": 4, "steps": 300},
             {"softmax": {"mechanism": "softmax", "width": 64, "hidden": 256},
              "w2": {"mechanism": "w2", "width": 64, "hidden": 256},
              "w2, equal parameters": {"mechanism": "w2", "width": 64, "hidden": equal_hidden(64, 256, "w2")}},
             (1e-3, 3e-3, 1e-2, 3e-2), (0,), FINAL_SEEDS),
    "hierarchy": ({"steps": 600}, {name + (", tied" if tied else ""): {"mechanism": name, "tied": tied}
                  for tied in (False, True) for name in ("softmax", "w2", "overlap")},
                  (3e-3, 1e-2, 3e-2, 1e-1, 3e-1), (0,), FINAL_SEEDS),
    "noisy": ({"heads": 4, "steps": 1500, "batch": 64}, arms(64, 128), (3e-4, 1e-3, 3e-3, 1e-2), (0,), FINAL_SEEDS),
    "mqar": ({"heads": 2, "steps": 600}, arms(32, 128, ["softmax", "w2"]), (1e-3, 3e-3, 1e-2, 3e-2), (0,), FINAL_SEEDS),
}
# With a feed-forward a little smaller, W2 takes the rate that its own sweep found.
BORROWED_RATE = {"w2, equal parameters": "w2"}


def key(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items())


def published_runs(cells, seed):
    return [{"task": "published", "stage": "final", "arm": f"{mechanism} {width}", "mechanism": mechanism,
             "width": width, "hidden": 4 * width, "heads": 4, "steps": 500, "rate": rate, "seed": seed}
            for mechanism, width, rate in cells]


def best_rate(sweep):
    """The rate with the lowest mean loss; in the tree, where a score ranks, with the highest area under the curve."""
    errors = {}
    for one in sweep:
        error = math.inf if one["loss"] is None else 1 - one["auc"] if "auc" in one else one["loss"]
        errors.setdefault(one["settings"]["rate"], []).append(error)
    return min(errors, key=lambda rate: mean(errors[rate]))


def swept_runs(task, runs):
    """The sweep, and the final runs; these have the rate None as long as the sweep of their arm is not complete."""
    shared, task_arms, rates, sweep_seeds, final_seeds = SWEPT[task]
    for arm, own in task_arms.items():
        swept = BORROWED_RATE.get(arm, arm)
        base = {"task": task, "stage": "sweep", "arm": swept, **task_arms[swept], **shared}
        sweep = [base | {"rate": rate, "seed": seed} for rate in rates for seed in sweep_seeds]
        if swept == arm:
            yield from sweep
        rate = None
        if all(key(s) in runs for s in sweep):
            rate = best_rate([runs[key(s)] for s in sweep])
        yield from ({"task": task, "stage": "final", "arm": arm, **own, **shared, "rate": rate, "seed": seed}
                    for seed in final_seeds)


def plan(runs):
    """Every run of the audit, the most important first. runs: those done, by key."""
    return [*published_runs(PUBLISHED, 0), *swept_runs("fair", runs), *swept_runs("hierarchy", runs),
            *swept_runs("noisy", runs), *swept_runs("mqar", runs), *published_runs(PUBLISHED[:2], 1)]


def missing(runs):
    return [settings for settings in plan(runs) if settings["rate"] is None or key(settings) not in runs]


def plain(x):
    """For json, rounded to what a reader sees; what diverged is None."""
    if isinstance(x, list):
        return [plain(each) for each in x]
    if isinstance(x, float):
        return round(x, 5) if math.isfinite(x) else None
    return x


def work(settings):
    """In a process of its own."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    result = {name: plain(x) for name, x in run(settings).items()}
    return {"settings": settings, **result, "seconds": round(time.perf_counter() - start, 1)}


def saved_bytes(function):
    """What autograd keeps for the backward pass of function(), in bytes: each storage once, parameters not counted."""
    storages, kept = {}, []

    def pack(x):
        if not isinstance(x, torch.nn.Parameter):
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            kept.append(x)      # a storage that is freed could lend its address to the next
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        function()
    return sum(storages.values())


ATTENTION_FORMS = ("softmax, direct", "softmax, fused",
                   "W2, direct", "W2, expanded", "W2, augmented", "W2, fused", "overlap")


def memory_bytes(form, n, heads=4, head_dim=16):
    """Bytes kept for backward by one attention layer, from q, k, v on, for one sequence of n tokens."""
    rand = lambda: torch.rand(1, heads, n, head_dim, requires_grad=True)
    mu_q, sigma_q, mu_k, sigma_k, v = (rand() for _ in range(5))
    name, _, how = form.partition(", ")
    if form not in ATTENTION_FORMS:
        raise ValueError(f"form must be one of {', '.join(ATTENTION_FORMS)}; got {form!r}")
    if form == "softmax, direct":
        return saved_bytes(lambda: scaled_dot_product_attention(mu_q, mu_k, v, causal=True))
    if form == "softmax, fused":
        return saved_bytes(lambda: F.scaled_dot_product_attention(mu_q, mu_k, v, is_causal=True))
    if form == "W2, fused":
        q, k = torch.cat([mu_q, sigma_q], -1), torch.cat([mu_k, sigma_k], -1)
        return saved_bytes(lambda: attend(q, k, v, torch.ones(heads), "w2"))
    if form == "overlap":       # as it was written down, every pair and feature at once
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        return saved_bytes(lambda: gaussian_overlap(
            mu_q[..., :, None, :], sigma_q[..., :, None, :], mu_k[..., None, :, :], sigma_k[..., None, :, :],
        ).masked_fill(later, -torch.inf).softmax(-1) @ v)
    return saved_bytes(lambda: w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, 1.0, causal=True, form=how))


def model_bytes(mechanism, width, n=512):
    """One step on one sequence of n tokens: weights, gradients and AdamW's two moments, and what backward keeps."""
    model = AuditModel(1024, 1024, width, 4 * width, 4, mechanism)
    tokens = torch.zeros(1, n, dtype=torch.long)
    kept = saved_bytes(lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))
    return {"mechanism": mechanism, "width": width, "n": n, "state": 16 * parameters(model), "kept": kept}


def memory_section():
    lengths = (64, 128, 256, 512)
    return {"attention": {form: {str(n): memory_bytes(form, n) for n in lengths} for form in ATTENTION_FORMS},
            "model": [model_bytes(*arm) for arm in (("softmax", 64), ("softmax", 96), ("w2", 64), ("w2", 96))]}


def results(path=None):
    """What the audit found: data/w2_audit.json."""
    return json.loads((path or datasets.DATA / "w2_audit.json").read_text())


def finals(audit, task):
    """{(arm, rate): [runs]} of a task, the sweep left out."""
    groups = {}
    for one in audit["runs"].values():
        s = one["settings"]
        if s["task"] == task and s["stage"] == "final":
            groups.setdefault((s["arm"], s["rate"]), []).append(one)
    return groups


def summary(audit, task, measure="loss"):
    """A row for each arm: mean of the final runs, half the width of Student's 95 % interval, number of seeds."""
    rows = []
    for (arm, rate), runs in finals(audit, task).items():
        values = [one[measure] for one in runs]
        n = len(values)
        half = T95[n - 1] * stdev(values) / n**0.5 if n > 1 else None
        rows.append({"arm": arm, "rate": rate, "mean": mean(values), "half_width": half, "seeds": n,
                     "parameters": runs[0]["parameters"]})
    return rows


def difference(audit, task, a, b, measure="loss"):
    """(mean, half width of the 95 % interval) of a minus b, paired by seed: both saw the same batches."""
    by_seed = [{one["settings"]["seed"]: one[measure] for (name, _), runs in finals(audit, task).items() if name == arm
                for one in runs} for arm in (a, b)]
    values = [by_seed[0][seed] - by_seed[1][seed] for seed in by_seed[0]]
    return mean(values), T95[len(values) - 1] * stdev(values) / len(values)**0.5


def five_second_slice(steps=100):
    """The public benchmark made small (vocabulary 64, twice 16 tokens, width 32), live: {(mechanism, rate): loss}.

    Softmax at both learning rates, W2 at the one it was given; the loss is the mean of the last 20 steps over the half
    that can be predicted, ln 64 = 4.16 for a blind guess. Torch's generator is left as it was.
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


def write(path, audit):
    """Whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(audit, indent=1) + "\n")
    os.replace(partial, path)


def expected_seconds(settings, runs):
    """What runs like it took; before there is one, a guess."""
    like = [one["seconds"] for one in runs.values()
            if all(one["settings"][name] == settings[name] for name in ("task", "mechanism"))]
    guess = {"published": 120, "fair": 70, "hierarchy": 4, "noisy": 30, "mqar": 40}[settings["task"]]
    return mean(like) if like else guess * (3 if settings["mechanism"] == "overlap" else 1)


def progress(one, runs, workers):
    s, left = one["settings"], missing(runs)
    minutes = sum(expected_seconds(other, runs) for other in left) / workers / 60
    print(f"{time.strftime('%H:%M:%S')} {len(runs)}/{len(runs) + len(left)} {s['task']} {s['stage']} {s['arm']} "
          f"rate {s['rate']:g} seed {s['seed']}: loss {one['loss']}, {one['seconds']:.0f} s; "
          f"about {minutes:.0f} minutes left", flush=True)


def audit_command(argv):
    """python -m course_lib w2-audit: train what chapter 9 compares. An hour on two cores; goes on where it stopped."""
    parser = argparse.ArgumentParser(prog="python -m course_lib w2-audit", description=audit_command.__doc__)
    parser.add_argument("--out", type=Path, default=datasets.DATA / "w2_audit.json")
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--at-most", type=int, help="stop after as many runs")
    args = parser.parse_args(argv)

    audit = results(args.out) if args.out.exists() else {"runs": {}, "wall_seconds": 0.0}
    runs, before, start, count = audit["runs"], audit["wall_seconds"], time.monotonic(), 0
    audit |= {"command": "python -m course_lib w2-audit", "made": time.strftime("%Y-%m-%d"), "torch": torch.__version__,
              "batch": BATCH, "floor": round(FLOOR, 4), "start_std": START_STD,
              "interval": "Student's t, 95 %, over seeds",
              "machine": f"{args.workers} processes of one thread each, {platform.machine()}"}

    def keep():
        audit.update(wall_seconds=round(before + time.monotonic() - start, 1), complete=not missing(runs),
                     run_seconds=round(sum(one["seconds"] for one in runs.values()), 1))
        write(args.out, audit)

    audit.update(memory=memory_section(), noisy_rules=noisy_rules())
    keep()
    # Fresh processes: one that is forked while torch's threads run can hang.
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        under_way = {}
        while True:
            for settings in missing(runs):
                started = count + len(under_way)
                if settings["rate"] is None or key(settings) in under_way.values() or started == args.at_most:
                    continue
                if len(under_way) == args.workers:
                    break
                under_way[pool.submit(work, settings)] = key(settings)
            if not under_way:
                break
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                runs[under_way.pop(future)] = future.result()
                count += 1
                keep()
                progress(future.result(), runs, args.workers)
    if not missing(runs):       # in the order of the plan, without what an earlier plan asked for
        runs = audit["runs"] = {key(settings): runs[key(settings)] for settings in plan(runs)}
        keep()
    print(f"{args.out.name}: {len(runs)} runs, {'complete' if audit['complete'] else 'not complete'}")
    return 0
