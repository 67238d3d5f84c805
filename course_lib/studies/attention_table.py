"""`python -m course_lib attention-table`: every attention in one model, equal parameters and tokens.

Writes data/attention_table.json after each run of training. The next call continues from it."""
import json
import time
from dataclasses import replace
from itertools import product

import torch

from course_lib import datasets
from course_lib.language_model import (ATTENTIONS, CharTokenizer, Config, LanguageModel, evaluate,
                                       make_optimizer, random_batch, train)
from .study import options, parameters, plays, write

BATCH, BLOCK, PEAK = 12, 64, 2e-3
SPEED = "training, per second of CPU time, one thread, on a machine shared with other work"
MIXES = {"3 sliding, 1 softmax without positions": {"attention": ["sliding"] * 3 + ["softmax"],
                                                    "rope": [True] * 3 + [False]},
         "3 delta, 1 softmax": {"attention": ["delta"] * 3 + ["softmax"]}}


def of_equal_size(config, target: int):
    """config with the width of the feed-forward that brings the number of parameters closest to target."""
    one, two = (parameters(LanguageModel(replace(config, d_hidden=h))) for h in (1, 2))
    return replace(config, d_hidden=1 + round((target - one) / (two - one)))


def cache_bytes(config, tokens: int) -> int:
    """Bytes in the caches of all layers after that many tokens, in float32: counted, by running the model."""
    model = LanguageModel(replace(config, context=tokens))
    caches = model.make_caches()
    with torch.no_grad():
        for _ in range(tokens):
            model(torch.zeros(1, 1, dtype=torch.long), caches)
    return sum(cache.bytes for cache in caches)


def tokens_per_second(models: dict, data, rounds=5, steps=6) -> dict:
    """Training tokens per second of CPU time, one thread: the best of several rounds, models in turns."""
    best = dict.fromkeys(models, 0.0)
    optimizers = {name: make_optimizer(model, PEAK, 0.1) for name, model in models.items()}
    for _ in range(rounds):
        for name, model in models.items():
            generator, start = torch.Generator().manual_seed(0), time.process_time()
            for _ in range(steps):
                model.loss(*random_batch(data, BATCH, BLOCK, generator)).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizers[name].step()
                optimizers[name].zero_grad()
            best[name] = max(best[name], steps * BATCH * BLOCK / (time.process_time() - start))
    return {name: round(speed, -2) for name, speed in best.items()}


def table_command(argv):
    """python -m course_lib attention-table: every attention at equal parameters and tokens, several seeds."""
    parser = options("attention-table", table_command.__doc__, steps=600, seeds=3)
    parser.add_argument("--mixes", action="store_true", help="also models that mix attentions")
    args = parser.parse_args(argv)

    torch.set_num_threads(1)
    tokenizer = CharTokenizer.from_text(datasets.shakespeare("train"))
    data, validation = plays(tokenizer)
    configs = _configs(len(tokenizer), args.mixes)
    result = _begun(args, argv, configs["softmax"])
    for seed, (name, config) in product(range(args.seeds), configs.items()):
        row = result["rows"].setdefault(name, {"losses": {}})
        if str(seed) in row["losses"]:
            continue
        torch.manual_seed(seed)
        model = LanguageModel(config)
        row |= {"d_hidden": config.d_hidden, "parameters": parameters(model)}
        train(model, data, steps=args.steps, batch=BATCH, block=BLOCK, peak=PEAK, seed=seed,
              check_every=args.steps)
        row["losses"][str(seed)] = round(evaluate(model, validation, BLOCK, blocks=1000), 4)
        write(args.out, result)
        print(f"{name:40} seed {seed}  loss {row['losses'][str(seed)]:.4f}", flush=True)
    speeds = tokens_per_second({name: LanguageModel(config) for name, config in configs.items()}, data)
    for name, speed in speeds.items():
        held = {n: cache_bytes(configs[name], n) for n in (BLOCK, 4 * BLOCK)}
        result["rows"][name] |= {"tokens_per_second": speed, "cache_bytes": held}
    result["tokens_per_second"] = SPEED
    write(args.out, result)
    return 0


def _configs(vocab_size, mixes):
    """{name: configuration}, all with as many parameters as softmax attention."""
    base = Config(vocab_size, context=BLOCK, window=16)
    target = parameters(LanguageModel(base))
    configs = {name: replace(base, attention=name) for name in ATTENTIONS}
    if mixes:
        configs |= {name: replace(base, **mix) for name, mix in MIXES.items()}
    return {name: of_equal_size(config, target) for name, config in configs.items()}


def _begun(args, argv, base):
    """The table with the rows of an earlier call, if its file exists."""
    recipe = {"steps": args.steps, "batch": BATCH, "block": BLOCK, "peak": PEAK, "window": base.window,
              "n_kv_heads": base.n_kv_heads, "latent_dim": base.latent_dim, "rope_dim": base.rope_dim}
    result = {"command": " ".join(["python -m course_lib attention-table", *argv]), **recipe,
              "loss": "nats per character, 1,000 blocks spread over the validation plays",
              "cache_bytes": "of one sequence of that many tokens, all layers, float32", "rows": {}}
    if args.out.exists():
        before = json.loads(args.out.read_text())
        if {name: before.get(name) for name in recipe} != recipe:
            raise ValueError(f"out must be a table of the same recipe, or a new file; {args.out} has another")
        result["rows"] = before["rows"]
    return result
