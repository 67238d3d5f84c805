"""`python -m course_lib w2-audit`: chapter 9's audit of W2 attention. Writes data/w2_audit.json.

Every run is written as soon as it is done: an interrupted audit resumes."""
import argparse
import math
import multiprocessing
import platform
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from statistics import mean

import torch

from course_lib import datasets
from course_lib.studies.study import write
from course_lib.studies.w2_audit_memory import memory_section
from course_lib.studies.w2_audit_plan import key, missing, plan
from course_lib.studies.w2_audit_results import results, seconds
from course_lib.studies.w2_audit_tasks import BATCH, FLOOR, START_STD, noisy_rules, run


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
    start = time.process_time()
    result = {name: plain(x) for name, x in run(settings).items()}
    return {"settings": settings, **result, "cpu_seconds": round(time.process_time() - start, 1)}


def expected_seconds(settings, runs):
    """What runs like it took; before there is one, a guess."""
    like = [seconds(one) for one in runs.values()
            if all(one["settings"][name] == settings[name] for name in ("task", "mechanism"))]
    guess = {"public": 120, "published": 120, "fair": 70, "hierarchy": 4, "noisy": 30, "mqar": 40}
    return mean(like) if like else guess[settings["task"]] * (3 if settings["mechanism"] == "overlap" else 1)


def progress(one, runs, workers):
    s, left = one["settings"], missing(runs)
    minutes = sum(expected_seconds(other, runs) for other in left) / workers / 60
    print(f"{time.strftime('%H:%M:%S')} {len(runs)}/{len(runs) + len(left)} {s['task']} {s['stage']} "
          f"{s['arm']} rate {s['rate']:g} seed {s['seed']}: loss {one['loss']}, {seconds(one):.0f} s; "
          f"about {minutes:.0f} minutes left", flush=True)


def train_missing(runs, workers, at_most, done):
    """Train what `runs` lacks, and call done(run) after each. A final run becomes possible when the sweep of
    its arm is complete. The processes are fresh: one that is forked while torch's threads run can hang."""
    count, under_way = 0, {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        while True:
            for settings in missing(runs):
                if settings["rate"] is None or key(settings) in under_way.values():
                    continue
                if len(under_way) == workers or count + len(under_way) == at_most:
                    break
                under_way[pool.submit(work, settings)] = key(settings)
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                runs[under_way.pop(future)] = future.result()
                count += 1
                done(future.result())


def audit_command(argv):
    """python -m course_lib w2-audit: train what chapter 9 compares. Two hours on two cores; it resumes."""
    parser = argparse.ArgumentParser(prog="python -m course_lib w2-audit", description=audit_command.__doc__)
    parser.add_argument("--out", type=Path, default=datasets.DATA / "w2_audit.json")
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--at-most", type=int, help="stop after as many runs")
    args = parser.parse_args(argv)

    audit = results(args.out) if args.out.exists() else {"runs": {}, "wall_seconds": 0.0}
    runs, before, start = audit["runs"], audit["wall_seconds"], time.monotonic()
    audit |= {"command": "python -m course_lib w2-audit", "made": time.strftime("%Y-%m-%d"),
              "torch": torch.__version__, "batch": BATCH, "floor": round(FLOOR, 4), "start_std": START_STD,
              "interval": "Student's t, 95 %, over seeds",
              "machine": f"{args.workers} processes of one thread each, {platform.machine()}",
              "memory": memory_section(), "noisy_rules": noisy_rules()}

    def keep(one=None):
        audit.update(wall_seconds=round(before + time.monotonic() - start, 1), complete=not missing(runs),
                     run_seconds=round(sum(map(seconds, runs.values())), 1))
        write(args.out, audit)
        if one:
            progress(one, runs, args.workers)

    keep()
    train_missing(runs, args.workers, args.at_most, keep)
    if not missing(runs):       # in the order of the plan, without what an earlier plan asked for
        runs = audit["runs"] = {key(settings): runs[key(settings)] for settings in plan(runs)}
        keep()
    print(f"{args.out.name}: {len(runs)} runs, {'complete' if audit['complete'] else 'not complete'}")
    return 0
