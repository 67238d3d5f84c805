"""Whole models: tiny folders against what the published code gave (recorded), and unreadable folders."""
import json
import re
import struct

import jinja2
import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib import cuda
from course_lib.exercises import find
from course_lib.field_guide import BadCheckpoint, NotANumber, describe, open_model
from course_lib.field_guide import base, softmax
from course_lib.field_guide.whole import quantised, serving
from course_lib.field_guide.whole.chat import Conversation, main as chat
from course_lib.field_guide.whole.quantised import Quantised, dequantised, quantise
from course_lib.field_guide.whole.serving import Server, pageable
from course_lib.field_guide.whole.tiny import EVERY, mask, tiny

NAMES = tiny()
CHUNKED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "kimi_linear")


def gap(ours, theirs, present):
    return float(((ours - theirs).abs() * present[..., None]).max() / theirs.abs().max())


def test_at_least_45_families_and_40_bad_folders():
    assert len(NAMES) >= 45 and len(BAD) >= 40


@pytest.mark.parametrize("model_type", NAMES)
def test_equal_to_the_recorded_model(model_type, tmp_path):
    """Logits of a batch padded at the left; the slow suite has every way to read a text, and 64 tokens."""
    family = tiny(model_type)
    model = open_model(family.write(tmp_path))
    present = mask() if family.padded else None
    got = model.logits(family.texts, present)[..., ::EVERY]
    assert (gap(got, family.logits, mask() if family.padded else torch.ones(2, 23))
            < (2e-5 if model_type in CHUNKED else 1e-5))


@pytest.mark.parametrize("model_type", ["llama", "gemma2", "gpt_oss", "deepseek_v3", "mimo_v2_flash"])
def test_long_texts_are_read_in_pieces_and_by_torch_s_own_attention(model_type, tmp_path, monkeypatch):
    """As if 23 tokens were long: scores of 2 queries at a time, and torch's attention where it computes the same."""
    family, calls = tiny(model_type), []
    model, own = open_model(family.write(tmp_path)), base.F.scaled_dot_product_attention
    monkeypatch.setattr(base, "SHORT", 0)
    monkeypatch.setattr(softmax, "SCORES", 400)
    monkeypatch.setattr(base.F, "scaled_dot_product_attention", lambda *a, **k: calls.append(a) or own(*a, **k))
    assert gap(model.logits(family.texts, mask())[..., ::EVERY], family.logits, mask()) < 1e-5
    assert (len(calls) >= 3 * 8) == (model_type == "llama")


@pytest.mark.parametrize("model_type", ["gemma2", "mimo_v2_flash", "deepseek_v3", "qwen3_next", "falcon_h1"])
def test_greedy_tokens_as_recorded(model_type, tmp_path):
    """Through pages where layers have rows of one shape; the others each by themselves."""
    family = tiny(model_type)
    model = open_model(family.write(tmp_path))
    model.text.ends = frozenset()
    assert pageable(model.decoder) == (model_type == "gemma2")
    assert model.generate(family.texts.tolist(), 6) == family.tokens[:, :6].tolist()


@pytest.mark.parametrize("model_type, by_torch", [
    ("llama", set()), ("gemma3_text", set()), ("gemma2", {"attention by torch: softcap"}),
    ("gpt_oss", {"attention by torch: mask"}), ("deepseek_v3", {"attention by torch: latents"})])
def test_on_the_course_s_kernels_a_model_says_the_same(model_type, by_torch, tmp_path):
    """Padded and whole, then token by token; what was left to torch is said."""
    family = tiny(model_type)
    model = open_model(family.write(tmp_path), kernels=True)
    got = model.logits(family.texts, mask())[..., ::EVERY]
    assert gap(got, family.logits, mask()) < 1e-5
    plain = open_model(tmp_path).stream(family.texts[0].tolist(), 3)
    padded = torch.arange(23)[None] > 3                     # of one text: no window either
    alone = [one.logits(family.texts[:1], padded) for one in (model, open_model(tmp_path))]
    assert gap(*alone, padded) < 1e-5
    model.kernels.clear()
    with cuda.profile() as report:
        assert list(model.stream(family.texts[0].tolist(), 3)) == list(plain)
    assert {name for name in model.kernels if "by torch" in name} == by_torch
    launched = [launch.kernel.partition("<")[0] for launch in report.launches]
    assert launched.count("rms_norm") == model.kernels["norm"] > 0
    assert sum(name.startswith("rope") for name in launched) == model.kernels["rotation"]
    assert launched.count("window_sink") == model.kernels["attention in a window"]


@pytest.mark.slow
def test_a_launch_of_a_model_is_looked_at_as_any_other(llama, needs):
    """The player's recording, and the machine code of the same instance beside its counts."""
    needs("nvcc")
    with cuda.profile() as report:
        open_model(llama, kernels=True).logits(tiny("llama").texts)
    of_layer_2 = [launch for launch in report.launches if launch.kernel.startswith("flash")][2]
    assert {event["array"] for event in of_layer_2.replay().events} >= {"q", "k", "v", "out", "lse"}
    inside = cuda.inspect(cuda.load("flash_attention")[of_layer_2.kernel], launch=of_layer_2)
    assert inside["registers"] > 32 and inside.launch is of_layer_2


@pytest.mark.parametrize("model_type", ["deepseek_v3", "llama", "glm4", "phi3", "gemma3_text"])
def test_an_older_config_says_the_same(model_type, tmp_path):
    """A base beside the options of a rotation, whose kind is a "type": as DeepSeek-V3's folder has it."""
    family = tiny(model_type)
    rope = family.config.pop("rope_parameters")
    if "full_attention" in rope:
        family.config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    family.config["torch_dtype"], family.config["rope_theta"] = family.config.pop("dtype"), rope.pop("rope_theta")
    family.config["partial_rotary_factor"] = rope.pop("partial_rotary_factor", None)
    kind = rope.pop("rope_type")
    family.config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    got = open_model(family.write(tmp_path)).logits(family.texts, mask())[..., ::EVERY]
    assert gap(got, family.logits, mask()) < 1e-5


def test_what_a_file_leaves_to_the_class_is_said(tmp_path):
    family = tiny("gpt_oss")
    want = open_model(family.write(tmp_path / "whole")).logits(family.texts)
    assert family.config.pop("layer_types")[:3] == ["sliding_attention", "full_attention", "sliding_attention"]
    model = open_model(family.write(tmp_path / "part"))
    assert "Not in config.json, so taken from the library's class: layer_types." in model.notes
    assert torch.equal(model.logits(family.texts), want)


@pytest.mark.parametrize("model_type, several", [
    ("llama", 25), ("gemma2", 9),
    *(pytest.param(*one, marks=pytest.mark.slow) for one in (("llama", 100), ("gpt_oss", 9)))])
def test_uneven_prompts_through_pages_as_one_at_a_time(model_type, several, tmp_path, monkeypatch):
    """With few pages, so that sequences are preempted; a common beginning is computed once; no page is lost."""
    model = open_model(tiny(model_type).write(tmp_path))
    prompts = [[(7 * i + j * j) % 61 + 3 for j in range(1 + 5 * i % 23)] for i in range(several - 2)]
    prompts += [prompts[4] + [9, 8], prompts[4] + [4]]
    alone = [list(model.stream(prompt, 6)) for prompt in prompts]
    server, preempted, most = Server(model.decoder, n_blocks=14, block_size=4, token_budget=16), 0, 0
    for prompt in prompts:
        server.add_request(prompt, 6, stop=sorted(model.text.ends))
    while server.busy:
        step = server.step()
        preempted, most = preempted + len(step.preempted), max(most, len(step.scheduled))
        server.cache.allocator.check()
    assert [server.output(i)[0] for i in range(several)] == alone and preempted and most > 1
    assert server.cache.allocator.n_available == 14
    made = []           # `generate` takes pages for the 16 longest texts, of 16 tokens each, and no more
    monkeypatch.setattr(serving, "Server", lambda *given, **more: made.append(Server(*given, **more)) or made[0])
    assert model.generate(prompts, 6) == alone
    assert made[0].cache.allocator.n_blocks == sum(sorted((len(one) + 21) // 16 for one in prompts)[-16:])


@pytest.mark.parametrize("kind, lost", [("int8", 0.01), ("int4", 0.1)])
def test_quantised_weights_are_the_product_with_what_their_numbers_mean(kind, lost, llama, monkeypatch):
    """Torch's product of small numbers beside the plain one, of a matrix and in every layer of a model."""
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(128, 48), torch.randn(3, 7, 128)
    weight = dequantised(*quantise(linear.weight.detach(), kind, 32))
    assert 0 < (weight - linear.weight).norm() / linear.weight.norm() < lost
    want = x @ weight.T + linear.bias
    torch.testing.assert_close(Quantised(linear, kind, 32)(x), want, atol=0.02, rtol=0.02)
    texts, small, plain = tiny("llama").texts, open_model(llama, weights=kind, group=32), open_model(llama)
    for name, module in small.layers.named_modules():
        if isinstance(module, Quantised):
            matrix = plain.layers.get_submodule(name).weight
            matrix.copy_(dequantised(*quantise(matrix, kind, 32)))
    assert gap(small.logits(texts), plain.logits(texts), torch.ones(2, 23)) < 0.05
    assert gap(plain.logits(texts), open_model(llama).logits(texts), torch.ones(2, 23)) > lost / 2
    assert small.notes[-1].startswith(f"{kind}: matrices of ") and len(small.generate(texts.tolist(), 2)) == 2
    with pytest.raises(ValueError, match="weights must be 'int8' or 'int4', and group one of"):
        open_model(llama, weights=kind, group=48)
    monkeypatch.setattr(quantised, "aten", None)            # a torch without such products
    slow = open_model(llama, weights=kind, group=32)
    assert slow.notes[-1].endswith("no product of such numbers here.")
    assert gap(slow.logits(texts), plain.logits(texts), torch.ones(2, 23)) < 1e-5


@pytest.fixture
def llama(tmp_path):
    return tiny("llama").write(tmp_path / "llama")


def test_the_ways_to_read_a_text_agree(llama):
    model, texts = open_model(llama), tiny("llama").texts
    want = model.logits(texts)
    caches = model.decoder.caches()
    parts = [model.logits(part, caches=caches) for part in texts.split([9, 1, 13], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), want, atol=1e-5, rtol=0)
    right = torch.cat([texts, torch.zeros(2, 4, dtype=torch.long)], 1)
    present = torch.cat([torch.ones_like(texts), torch.zeros(2, 4, dtype=torch.long)], 1)
    torch.testing.assert_close(model.logits(right, present)[:, :-4], want, atol=1e-5, rtol=0)
    assert want.dtype == torch.float32 and want.shape == (*texts.shape, 64)


def test_the_parts_of_a_model_are_the_chapters(llama):
    model = open_model(llama)
    assert model.config["model_type"] == "llama" and str(model.card) == str(describe(model.config))
    assert model.tokenizer is None and model.layers[2].attention.recipe.layer == 2
    before = model.logits(tiny("llama").texts)
    model.layers[1].attention.out_proj.weight.zero_()
    assert not torch.allclose(model.logits(tiny("llama").texts), before)
    assert torch.allclose(open_model(llama).logits(tiny("llama").texts), before)  # the file is as it was


def test_weights_keep_their_kind_of_number_and_come_in_shards(tmp_path):
    family = tiny("qwen3")
    whole, half = family.write(tmp_path / "whole"), family.write(tmp_path / "half", torch.bfloat16)
    model = open_model(half)
    assert model.layers[0].attention.q_proj.weight.dtype == torch.bfloat16
    assert open_model(half, torch.float32).layers[0].attention.q_proj.weight.dtype == torch.float32
    exact = open_model(whole).logits(family.texts)
    assert gap(model.logits(family.texts), exact, torch.ones(2, 23)) < 0.1
    sharded = open_model(family.write(tmp_path / "shards", shards=3))
    assert torch.equal(sharded.logits(family.texts), exact)


def test_draws_depend_on_the_seed_alone(llama):
    model = open_model(llama)
    prompts = [[5, 9, 12], [7] * 20, [3]]
    options = dict(temperature=1.0, top_p=0.9, min_p=0.02, repetition_penalty=1.1)
    first = model.generate(prompts, 12, seed=3, **options)
    assert (first == model.generate(prompts, 12, seed=3, **options)
            != model.generate(prompts, 12, seed=4, **options))
    assert model.generate(prompts[:1], 12, seed=3, **options) == first[:1]
    assert all(len(new) <= 12 for new in first) and model.generate([[4]], 0) == [[]]


@pytest.mark.parametrize("call, said", [
    (lambda model: model.logits(torch.tensor([[0, 64]])), "ids must be in 0 to 63"),
    (lambda model: model.logits(torch.tensor([[0.5]])), "whole numbers"),
    (lambda model: model.logits(torch.tensor([3])), "shape"),
    (lambda model: model.logits(torch.tensor([[1, 2, 3]]), torch.ones(1, 2)),
     r"attention_mask must have shape \(1, 3\)"),
    (lambda model: model.generate([[3]], temperature=1.0, min_p=2), "min_p must be a number in 0 to 1; got 2"),
    (lambda model: model.generate(["hello"]), "has no tokenizer.json: give lists of ids")])
def test_bad_input_is_named(llama, call, said):
    with pytest.raises(ValueError, match=said):
        call(open_model(llama))


@pytest.mark.parametrize("key, where",
                         [("model.embed_tokens.weight", "the embedding"),
                          ("model.layers.1.self_attn.q_proj.weight", "layer 1"),
                          ("model.layers.1.self_attn.v_proj.weight", "layer 1"),
                          ("model.layers.2.mlp.down_proj.weight", "layer 2"),
                          ("model.layers.0.input_layernorm.weight", "layer 0"),
                          ("lm_head.weight", "the last norm and the output projection")])
def test_a_weight_that_is_not_a_number_is_named_at_the_first_token(llama, key, where):
    weights = load_file(llama / "model.safetensors")
    weights[key].view(-1)[0] = float("nan")
    if "embed" in key:
        weights[key][:] = float("nan")
    save_file(weights, llama / "model.safetensors")
    model = open_model(llama)
    with pytest.raises(NotANumber, match=f"^the output of {where} is not a number"):
        next(model.stream([5, 6], 4))


@pytest.fixture
def speaker(llama):
    """The tiny Llama with a tokenizer of letters and the template of a chat."""
    tokenizers = pytest.importorskip("tokenizers", reason='needs tokenizers: pip install "course_lib[models]"')
    signs = ["<pad>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz .,!?:\n<>|ABCDEFGHIJKLMNOPQRSTUVWXYZ"][:64]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={sign: n for n, sign in enumerate(signs)}, merges=[]))
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.add_special_tokens(signs[:3])
    tokenizer.save(str(llama / "tokenizer.json"))
    (llama / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, "chat_template": (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<model>")}))
    return llama


def test_texts_and_the_template_of_a_chat(speaker):
    model = open_model(speaker)
    assert model.text.decode(model.text.chat([{"role": "user", "content": "hi"}])) == "<user>hi\n<model>"
    assert model.text.chat([])[0] == 1
    whole = model.generate(["hello", "what is"], 8)
    assert all(isinstance(text, str) for text in whole) and whole[0] == model.generate(["hello"], 8)[0]
    assert model.generate(["hello"], 8, stop=(whole[0][3],)) == [whole[0].split(whole[0][3])[0]]


@pytest.mark.parametrize("template, said", [
    ("{{ ''.__class__.__mro__ }}", "unsafe"), ("{{ raise_exception('no system role') }}", "no system role"),
    ("{% if %}", "Expected an expression")])
def test_a_template_that_does_not_take_a_chat_is_said(speaker, template, said, monkeypatch, capsys):
    (speaker / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    monkeypatch.setattr("builtins.input", lambda prompt: "hello")
    assert chat([str(speaker)]) == 1
    assert re.search(f"chat: the template of a chat in .*{said}", capsys.readouterr().out)


def test_templates_may_use_what_published_ones_do(speaker):
    """Several by name, break in a loop, a date, text in JSON as it is, every special token."""
    template = ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
                "{{ strftime_now('%Y') | length }}{{ unk_token }}")
    (speaker / "tokenizer_config.json").write_text(json.dumps({"unk_token": "?", "chat_template": [
        {"name": "tools", "template": "no"}, {"name": "default", "template": template}]}))
    assert open_model(speaker).text.rendered([{"content": "<é>"}] * 2) == '{"content": "<é>"}4?'


def test_the_template_of_exercise_11_13_gives_what_its_solution_gives():
    render = {}
    exec(find("11.13").solution_text, render)
    template = find("11.13").card.partition("```jinja\n")[2].partition("```")[0]
    want = jinja2.Template(template, trim_blocks=True, lstrip_blocks=True).render
    for messages, asked in (case.args for case in find("11.13").cases(torch.Generator().manual_seed(3))):
        assert render["render"](messages, asked) == want(messages=messages, add_generation_prompt=asked)


def test_a_conversation_that_is_interrupted_goes_on(speaker):
    model = open_model(speaker)
    talk = Conversation(model, 12)
    first = "".join(talk.answer("hello"))
    assert talk.messages == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": first}]
    pieces = talk.answer("and then")
    begun = next(pieces) + next(pieces)
    with pytest.raises(KeyboardInterrupt):
        pieces.throw(KeyboardInterrupt)
    assert talk.messages[-1] == {"role": "assistant", "content": begun}
    again = "".join(talk.answer("go on"))
    fresh = Conversation(model, 12)
    fresh.messages = talk.messages[:-2]
    assert "".join(fresh.answer("go on")) == again          # kept caches change no word


def test_the_chat_command(speaker, monkeypatch, capsys):
    said = iter(["hello", KeyboardInterrupt, "so", ""])

    def read(prompt):
        word = next(said)
        if word is KeyboardInterrupt:
            raise word
        return word
    monkeypatch.setattr("builtins.input", read)
    assert chat([str(speaker), "--temperature", "0", "--max-new-tokens", "5", "--system", "be brief",
                 "--kernels"]) == 0
    out = capsys.readouterr().out
    assert out.count("model: ") == 2 and "an empty line ends the conversation" in out and "x attention" in out
    assert chat([str(speaker / "none")]) == 2 and "no such folder" in capsys.readouterr().out


def config(**changes):
    """Change config.json; None takes a key out."""
    def change(folder):
        said = {**json.loads((folder / "config.json").read_text()), **changes}
        (folder / "config.json").write_text(json.dumps({k: v for k, v in said.items() if v is not None}))
    return change


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def without(name):
    return lambda folder: (folder / name).unlink()


def weights(change):
    def edit(folder):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file({key: x.contiguous() for key, x in tensors.items()}, folder / "model.safetensors")
    return edit


def drop(key):
    return weights(lambda tensors: tensors.pop(key))


def put(key, *shape):
    return weights(lambda tensors: tensors.update({key: torch.ones(*shape)}))


def header(change):
    """Change the header of the file; the numbers stay where they are."""
    def edit(folder):
        data = (folder / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        said = json.loads(data[8:8 + length])
        change(said)
        new = json.dumps(said).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(new)) + new + data[8 + length:])
    return edit


def about(key, **changes):
    return header(lambda said: said[key].update(changes))


def cut(bytes):
    def edit(folder):
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:bytes])
    return edit


def sharded(change):
    def edit(folder):
        (folder / "model.safetensors").unlink()
        tiny("llama").write(folder, shards=2)
        index = folder / "model.safetensors.index.json"
        said = json.loads(index.read_text())
        change(folder, said)
        index.write_text(json.dumps(said))
    return edit


def moved(folder, said):
    said["weight_map"]["lm_head.weight"] = "model-00002-of-00002.safetensors"


def twice(folder, said):
    second = load_file(folder / "model-00002-of-00002.safetensors")
    save_file({**second, "lm_head.weight": torch.ones(64, 32)}, folder / "model-00002-of-00002.safetensors")


Q, SAFE = "model.layers.1.self_attn.q_proj.weight", "model.safetensors"
SHARD = "model-00001-of-00002.safetensors"
BAD_CONFIGS = {           # changes of config.json, and what is said of it
    "no family": (dict(model_type=None), "model_type: expected the name of a family, got None"),
    "a number for a family": (dict(model_type=3), "model_type: expected the name of a family, got 3"),
    "an unknown family": (dict(model_type="swirl", attention_swirl=3),
                          "model_type: 'swirl' is not one of the .* nor of the parts of one of llama"),
    "code of its own": (dict(model_type="swirl", auto_map={"AutoModel": "x.Y"}),
                        "model_type: 'swirl'.* auto_map names code of its own, which is never run"),
    "no vocabulary": (dict(vocab_size=None), "config must have vocab_size"),
    "a width in words": (dict(hidden_size="wide"), "config must have a positive integer as hidden_size"),
    "no width": (dict(hidden_size=0), ".*hidden_size; got 0"),
    "layers below zero": (dict(num_hidden_layers=-1), ".*num_hidden_layers; got -1"),
    "one head too many": (dict(num_attention_heads=3), ".*num_key_value_heads divides; got 3 and 2"),
    "unknown rotation": (dict(rope_parameters={"rope_type": "twist"}), "rope_type 'twist'"),
    "no options of a rotation": (dict(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}), ".*factor"),
    "unknown activation": (dict(hidden_act="wink"), "hidden_act 'wink' is not one of silu"),
    "quantised": (dict(quantization_config={"bits": 4}), "quantization_config: quantised weights"),
    "other kinds of layers": (dict(layer_types=["full_attention"]), ".*its 3 layers in layer_types; got 1"),
}
BAD_WEIGHTS = {           # and of the file of weights
    "a layer that the file lacks": (config(num_hidden_layers=4), "model.layers.3.*: missing"),
    "a layer too many": (config(num_hidden_layers=2),
                         "model.layers.2.*: no place for it: config.json says 2"),
    "a larger vocabulary": (config(vocab_size=65),
                            "model.embed_tokens.weight: expected shape \\(65, 32\\), got"),
    "other heads": (config(head_dim=4), "model.layers.0.self_attn.*: expected shape"),
    "wider inside": (config(intermediate_size=40), "model.layers.0.mlp.*: expected shape"),
    "biases that are not there": (config(attention_bias=True),
                                  "model.layers.0.self_attn.q_proj.bias: missing"),
    "no weights": (without(SAFE), "missing"),
    "pickled weights": (lambda folder: (folder / SAFE).rename(folder / "pytorch_model.bin"),
                        "missing.*pytorch_model.bin is not read"),
    "an empty file": (cut(0), "truncated: its header does not fit into 0 bytes"),
    "a header cut off": (cut(100), "truncated: its header does not fit into 100 bytes"),
    "numbers cut off": (cut(-10), "model.*: truncated: it ends at byte"),
    "a header that is not JSON": (lambda folder: (folder / SAFE).write_bytes(struct.pack("<Q", 4) + b"spam"),
                                  "its header is not JSON"),
    "8-bit floats": (about(Q, dtype="F8_E4M3"), f"{Q}: tensors of kind F8_E4M3 are quantised weights"),
    "a shape that the bytes do not hold": (about(Q, shape=[31, 32]),
                                           f"{Q}: F32 of shape \\(31, 32\\) does not"),
    "a place before the file": (about(Q, data_offsets=[-4, 4092]), f"{Q}: .* does not take"),
    "no place": (header(lambda said: said[Q].pop("data_offsets")),
                 f"{Q}: expected dtype, shape and data_offsets"),
    "no queries": (drop(Q), f"{Q}: missing; expected a tensor of shape \\(32, 32\\)"),
    "no outputs of attention": (drop(Q.replace("q_", "o_")), f"{Q.replace('q_', 'o_')}: missing"),
    "no norm in a layer": (drop("model.layers.2.input_layernorm.weight"),
                           "model.layers.2.input_layernorm.weight: m"),
    "no embedding": (drop("model.embed_tokens.weight"), "model.embed_tokens.weight: missing"),
    "no last norm": (drop("model.norm.weight"), "model.norm.weight: missing"),
    "no output": (drop("lm_head.weight"), "lm_head.weight: missing"),
    "misshapen": (put(Q, 32, 33), f"{Q}: expected shape \\(32, 32\\), got \\(32, 33\\)"),
    "transposed": (put(Q.replace("q_", "k_"), 32, 16), ".*k_proj.weight: expected shape \\(16, 32\\), got"),
    "one more in a layer": (put("model.layers.1.self_attn.spin.weight", 3), ".*spin.weight: no place for it"),
    "one more outside": (put("model.spin.weight", 3), "model.spin.weight: no place for it"),
}
BAD = {**{name: (config(**change), f"config.json: {said}") for name, (change, said) in BAD_CONFIGS.items()},
       **{name: (change, f"{SAFE}: {said}") for name, (change, said) in BAD_WEIGHTS.items()}} | {
    "no config": (without("config.json"), "config.json: missing"),
    "no JSON": (text("config.json", "{"), "config.json: not JSON"),
    "a list": (text("config.json", "[1]"), "config.json: expected an object in JSON, got list"),
    "an index that is not JSON": (sharded(lambda folder, said: said.clear()),
                                  "model.safetensors.index.json: weight_map: exp"),
    "a shard that is not there": (sharded(lambda folder, said: (folder / SHARD).unlink()),
                                  f"{SHARD}: .*: the file is missing"),
    "a path out of the folder": (
        sharded(lambda folder, said: said["weight_map"].update({Q: "../x.safetensors"})),
        f"model.safetensors.index.json: {Q}: expected the name of a file here"),
    "in another shard": (sharded(moved),
                         "model-00002-of-00002.safetensors: lm_head.weight: missing; model.safetensors.ind"),
    "in two shards": (sharded(twice),
                      "model-00002.*: lm_head.weight: it is in model-00001-of-00002.safetensors too"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_folder_names_file_and_key(name, llama):
    change, said = BAD[name]
    change(llama)
    with pytest.raises(BadCheckpoint, match=f"^{said}") as caught:
        open_model(llama)
    assert (isinstance(caught.value, ValueError) and caught.value.file in said.replace("\\", "")
            + str(caught.value))


@pytest.mark.parametrize("model_type, key, shape, said", [
    ("phi3", "model.layers.0.self_attn.qkv_proj.weight", (60, 32), "expected a matrix that holds several"),
    ("deepseek_v3", "model.layers.1.mlp.experts.5.up_proj.weight", None, "missing; expected a tensor"),
    ("gpt_oss", "model.layers.1.mlp.experts.down_proj", None, "missing"),
    ("qwen3_next", "model.layers.0.linear_attn.A_log", (5,), "expected shape (4,), got (5,)"),
    ("granitemoehybrid", "model.layers.0.mamba.conv1d.weight", (56, 1, 5), "expected shape (56, 1, 4), got")])
def test_bad_weights_of_other_families(model_type, key, shape, said, tmp_path):
    family = tiny(model_type)
    family.write(tmp_path)
    (drop(key) if shape is None else put(key, *shape))(tmp_path)
    with pytest.raises(BadCheckpoint, match=f"^{SAFE}: {re.escape(key)}") as caught:
        open_model(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize("like", ["llama", "qwen3", "olmo2", "mixtral"])
def test_an_unknown_family_of_known_parts_is_built_and_says_so(like, tmp_path):
    family = tiny(like)
    family.write(tmp_path)
    config(model_type="swirl")(tmp_path)
    model = open_model(tmp_path)
    assert f"'swirl' is not one of the 62 that are built here: its weights and keys are those of {like}" in model.notes[0]
    assert gap(model.logits(family.texts[:1])[..., ::EVERY], family.logits[:1], mask()[:1]) < 1e-5


def test_what_published_folders_carry_beyond_the_model_is_let_by_with_a_line(llama):
    put("model.layers.0.self_attn.rotary_emb.inv_freq", 4)(llama)
    config(auto_map={"AutoModelForCausalLM": "modeling_llama.Llama"})(llama)
    notes = " ".join(open_model(llama).notes)
    assert "inv_freq" in notes and "auto_map is ignored" in notes
    assert "longer ones" in " ".join(open_model(tiny("phi3").write(llama.parent / "phi3")).notes)
    family = tiny("deepseek_v3")
    family.write(llama.parent / "drafts")
    put("model.layers.3.eh_proj.weight", 32, 64)(llama.parent / "drafts")
    assert (
        "model.layers.3.eh_proj.weight: draft layers" in " ".join(open_model(llama.parent / "drafts").notes))
