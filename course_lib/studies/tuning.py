"""The study of chapters 1, 4 and 9: the small model's loss with another attention, and after tuning."""
from course_lib.language_model import evaluate, train
from .study import plays, study


def tuned(make, seeds, validation, data, steps, **recipe):
    """The loss of make(seed) before training on, once, and after, for every seed; and the last model."""
    before, after = None, []
    for seed in range(seeds):
        model = make(seed)
        before = before or evaluate(model, validation, blocks=200)
        train(model, data, steps=steps, seed=seed, check_every=steps, **recipe)
        after.append(round(evaluate(model, validation, blocks=200), 4))
    return {"loss_before": round(before, 4), "loss_after": after}, model


def tuning_study(argv, command, about, mechanisms):
    """Train and measure the small model with each of {name: function (seed) -> model}."""
    def measure(args):
        data, validation = plays()
        rows = {}
        for name, make in mechanisms.items():
            rows[name], _ = tuned(make, args.seeds, validation, data, args.steps, batch=4, peak=1e-3,
                                  warmup=10)
            print(name, rows[name], flush=True)
        return {"steps": args.steps, "seeds": list(range(args.seeds)),
                "loss": "nats per character, 200 blocks spread over the validation plays", "rows": rows}

    return study(argv, command, about, measure, steps=60, seeds=3)
