"""How fast, and in how much memory, a whole model writes, beside `generate` of transformers.

    python -m course_lib whole-models-speed               prompts: one, uneven, very uneven; memory
    python -m course_lib whole-models-speed one memory    some of them; --rounds 5 --threads 1

Needs `transformers`. A Qwen 3 of 12 layers of 1,024 with random weights in float32, 735 MB, is made for the
run. Rounds take turns, and processor time is counted, so that other work on the machine disturbs little."""
import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from course_lib.field_guide import open_model
from course_lib.studies.field_guide import library

SIZES = dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16,
             head_dim=64, num_key_value_heads=8, vocab_size=16000, max_position_embeddings=4096,
             tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=0)
# name -> lengths of the prompts, new tokens of each
PROMPTS = {"one": ([100], 48),
           "uneven": ([16, 380, 8, 100, 40, 200, 16, 8, 200, 100, 380, 40, 100, 16, 200, 40], 32),
           "very uneven": ([round(8 * 1.36 ** i) for i in range(16)], 32)}
MEMORY = {"a prompt of 2,000": ([2000], 16), "16 prompts of 400": ([400] * 16, 16)}


def make_folder(folder: str) -> None:
    import transformers
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("qwen3", **SIZES)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def made_prompts(lengths: list[int]) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(3, SIZES["vocab_size"]) for _ in range(n)] for n in lengths]


def ours(folder: str):
    model = open_model(folder)
    model.text.ends = frozenset()
    return model.generate


def theirs(folder: str):
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None

    def generate(prompts, n):
        longest = max(map(len, prompts))
        ids, present = (torch.tensor([[0] * (longest - len(prompt)) + row(prompt) for prompt in prompts])
                        for row in (list, lambda prompt: [1] * len(prompt)))
        made = model.generate(ids, attention_mask=present, max_new_tokens=n, do_sample=False)
        return made[:, longest:].tolist()
    return generate


def compare(name: str, folder: str, rounds: int) -> None:
    (lengths, n), makers = PROMPTS[name], (ours(folder), theirs(folder))
    prompts, seconds, texts = made_prompts(lengths), ([], []), [None, None]
    for number in range(rounds + 1):
        for i, generate in enumerate(makers):
            start = time.process_time()
            texts[i] = generate(prompts if number else prompts[:1], n)          # the first warms up
            seconds[i].append(time.process_time() - start)
    speeds = [n * len(prompts) / statistics.median(some[1:]) for some in seconds]
    ratios = sorted(other / own for own, other in zip(*(some[1:] for some in seconds)))
    same = sum(a == b for a, b in zip(*texts))
    print(f"{name}: prompts of {min(lengths)} to {max(lengths)} tokens, {n} new ones each: {speeds[0]:.1f} tokens "
          f"per second, transformers {speeds[1]:.1f}; ratio {statistics.median(ratios):.2f}, from {ratios[0]:.2f} "
          f"to {ratios[-1]:.2f}; {same} of {len(prompts)} texts equal", flush=True)


def used() -> float:
    """MiB of this process, the largest so far. (What `resource` says would hold the parent's too.)"""
    said = Path("/proc/self/status").read_text()
    return int(said.partition("VmHWM:")[2].split()[0]) / 1024


def peak(which: str, name: str, folder: str) -> float:
    """MiB beyond what importing takes, the largest while a process of its own opens the model and answers."""
    code = ("import transformers.models.qwen3.modeling_qwen3, transformers.generation, torch\n"
            "from course_lib.studies import whole_models_speed as w\n"
            f"torch.set_num_threads(1); before = w.used(); lengths, n = w.MEMORY[{name!r}]\n"
            f"w.{which}({folder!r})(w.made_prompts(lengths), n); print(w.used() - before)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def memory(folder: str) -> None:
    model = open_model(folder)
    weights = sum(x.numel() * x.element_size() for x in model.decoder.parameters()) / 2 ** 20
    rows = 2 * SIZES["num_hidden_layers"] * SIZES["num_key_value_heads"] * SIZES["head_dim"] * 4 / 2 ** 20
    for name, (lengths, n) in MEMORY.items():
        least = weights + rows * sum(length + n for length in lengths)
        own, other = (peak(which, name, folder) / least for which in ("ours", "theirs"))
        print(f"{name}: weights and cache {least:.0f} MiB; ours {own:.2f} times that, transformers {other:.2f}",
              flush=True)


def main(arguments) -> int:
    parser = argparse.ArgumentParser(prog="whole-models-speed")
    parser.add_argument("names", nargs="*", help=f"{', '.join(PROMPTS)}, memory; otherwise all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    names = options.names or [*PROMPTS, "memory"]
    if unknown := [name for name in names if name not in (*PROMPTS, "memory")]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(PROMPTS)}, memory")
    torch.set_num_threads(options.threads)
    print(f"{library()}, Qwen 3 of 12 layers of 1,024, float32, threads: {options.threads}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder)
        for name in names:
            memory(folder) if name == "memory" else compare(name, folder, options.rounds)
    return 0
