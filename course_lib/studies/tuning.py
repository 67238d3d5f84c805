"""What chapters 4 and 9 ask of a new attention: the small model's loss with it, at once and after a little tuning."""
import argparse
import json
from pathlib import Path

from course_lib import datasets, language_model
from course_lib.language_model.training import evaluate, train


def tuning_study(argv, command, about, mechanisms):
    """Train and measure the small model with each of {name: function (seed) -> model}, and write data/<command>.json."""
    parser = argparse.ArgumentParser(prog=f"python -m course_lib {command}", description=about)
    parser.add_argument("--out", type=Path, default=datasets.DATA / f"{command.replace('-', '_')}.json")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(argv)

    _, tokenizer = language_model.pretrained()
    data, validation = (tokenizer.encode(datasets.shakespeare(split)) for split in ("train", "validation"))
    rows = {}
    for name, make in mechanisms.items():
        before, after = None, []
        for seed in range(args.seeds):
            model = make(seed)
            before = before or evaluate(model, validation, blocks=200)
            train(model, data, steps=args.steps, batch=4, peak=1e-3, warmup=10, seed=seed, check_every=args.steps)
            after.append(round(evaluate(model, validation, blocks=200), 4))
        rows[name] = {"loss_before": round(before, 4), "loss_after": after}
        print(name, rows[name], flush=True)
    result = {"command": " ".join([f"python -m course_lib {command}", *argv]), "steps": args.steps,
              "seeds": list(range(args.seeds)), "loss": "nats per character, 200 blocks spread over the validation plays",
              "rows": rows}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0
