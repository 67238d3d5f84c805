"""The study of chapters 1, 4 and 9: the small model's loss with another attention, at once and after a little
tuning."""
from course_lib.language_model import evaluate, train
from .study import plays, study


def tuning_study(argv, command, about, mechanisms):
    """Train and measure the small model with each of {name: function (seed) -> model}."""
    def measure(args):
        data, validation = plays()
        rows = {}
        for name, make in mechanisms.items():
            before, after = None, []
            for seed in range(args.seeds):
                model = make(seed)
                before = before or evaluate(model, validation, blocks=200)
                train(model, data, steps=args.steps, batch=4, peak=1e-3, warmup=10, seed=seed,
                      check_every=args.steps)
                after.append(round(evaluate(model, validation, blocks=200), 4))
            rows[name] = {"loss_before": round(before, 4), "loss_after": after}
            print(name, rows[name], flush=True)
        return {"steps": args.steps, "seeds": list(range(args.seeds)),
                "loss": "nats per character, 200 blocks spread over the validation plays", "rows": rows}

    return study(argv, command, about, measure, steps=60, seeds=3)
