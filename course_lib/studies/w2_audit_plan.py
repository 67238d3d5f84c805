"""Which runs chapter 9's audit consists of, each known by its settings.

Each task is first swept over learning rates; the best is then run with seeds the sweep has not seen."""
import math
from statistics import mean

from course_lib.studies.w2_audit_models import equal_hidden

FINAL_SEEDS = range(100, 105)
# The harmonised benchmark: (mechanism, width, rate). "w2" was described, "overlap" was scored.
PUBLISHED = [("w2", 64, 5e-3), ("softmax", 96, 1e-3), ("softmax", 64, 5e-3), ("w2", 96, 1e-3),
             ("overlap", 64, 5e-3), ("softmax", 96, 5e-3), ("w2", 64, 1e-3), ("softmax", 64, 1e-3),
             ("w2", 96, 5e-3)]
# The benchmark in the repository's own configuration: (score, width, heads, rate, seeds). First the two
# arms of its table, then one change at a time.
PUBLIC = [("softmax", 96, 6, 1e-3, (0, 1)), ("overlap", 64, 4, 5e-3, (0,)), ("softmax", 64, 4, 5e-3, (0,)),
          ("softmax", 96, 6, 5e-3, (0,))]
LOW_RATE, LOW_TASKS = 1e-3, ("fair", "mqar", "hierarchy")      # where the sweep saw the arms differ


def arms(width, hidden, mechanisms=("softmax", "w2", "overlap")):
    """Equal parameters: what the wider projections cost is taken from the feed-forward."""
    return {name: {"mechanism": name, "width": width, "hidden": equal_hidden(width, hidden, name)}
            for name in mechanisms}


# task: what is shared, the arms, the learning rates and seeds of the sweep, the seeds of the final runs
SWEPT = {"fair": ({"heads": 4, "steps": 300},
                  {"softmax": {"mechanism": "softmax", "width": 64, "hidden": 256},
                   "w2": {"mechanism": "w2", "width": 64, "hidden": 256},
                   "w2, equal parameters": {"mechanism": "w2", "width": 64,
                                            "hidden": equal_hidden(64, 256, "w2")}},
                  (1e-3, 3e-3, 1e-2, 3e-2), (0,), FINAL_SEEDS),
         "hierarchy": ({"steps": 600}, {name + (", tied" if tied else ""): {"mechanism": name, "tied": tied}
                       for tied in (False, True) for name in ("softmax", "w2", "overlap")},
                       (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0), (0,), FINAL_SEEDS),
         "noisy": ({"heads": 4, "steps": 1500, "batch": 64}, arms(64, 128),
                   (3e-4, 1e-3, 3e-3, 1e-2), (0,), FINAL_SEEDS),
         "mqar": ({"heads": 2, "steps": 600}, arms(32, 128, ["softmax", "w2"]),
                  (1e-3, 3e-3, 1e-2, 3e-2), (0,), FINAL_SEEDS)}
FINAL_TEST = {"noisy": {"test": 20_000}}     # fresh queries on which the final runs of this task are measured
# With a feed-forward a little smaller, W2 takes the rate that its own sweep found.
BORROWED_RATE = {"w2, equal parameters": "w2"}
EQUAL_W2 = {"fair": "w2, equal parameters"}         # the arm with softmax's parameters, where it is not "w2"


def key(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items())


def public_runs():
    return [{"task": "public", "stage": "final", "arm": f"{score} {width}", "mechanism": score,
             "width": width, "hidden": 4 * width, "heads": heads, "steps": 500, "rate": rate, "seed": seed}
            for score, width, heads, rate, seeds in PUBLIC for seed in seeds]


def low_rate_runs():
    """Softmax and W2 of equal parameters at a low rate, with seeds that the sweep has not seen."""
    return [{"task": task, "stage": "low rate", "arm": arm, **task_arms[arm], **shared, "rate": LOW_RATE,
             "seed": seed}
            for task, (shared, task_arms, *_, seeds) in SWEPT.items() if task in LOW_TASKS for seed in seeds
            for arm in ("softmax", EQUAL_W2.get(task, "w2"))]


def published_runs(cells, seed):
    return [{"task": "published", "stage": "final", "arm": f"{mechanism} {width}", "mechanism": mechanism,
             "width": width, "hidden": 4 * width, "heads": 4, "steps": 500, "rate": rate, "seed": seed}
            for mechanism, width, rate in cells]


def best_rate(sweep):
    """The rate of lowest mean loss; in the tree, where a score ranks, the highest area under the curve."""
    errors = {}
    for one in sweep:
        error = math.inf if one["loss"] is None else 1 - one["auc"] if "auc" in one else one["loss"]
        errors.setdefault(one["settings"]["rate"], []).append(error)
    return min(errors, key=lambda rate: mean(errors[rate]))


def swept_runs(task, runs):
    """The sweep, and the final runs, with the rate None while the sweep of their arm is not complete."""
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
                    | FINAL_TEST.get(task, {}) for seed in final_seeds)


def plan(runs):
    """Every run of the audit, the most important first. runs: those done, by key."""
    return [*public_runs(), *published_runs(PUBLISHED, 0), *swept_runs("hierarchy", runs),
            *swept_runs("noisy", runs), *swept_runs("fair", runs), *swept_runs("mqar", runs),
            *published_runs(PUBLISHED[:2], 1), *low_rate_runs()]


def missing(runs):
    return [settings for settings in plan(runs) if settings["rate"] is None or key(settings) not in runs]
