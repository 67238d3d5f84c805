"""Chapter 9's audit: its tasks and models, its interruption, and the committed file, which is what it makes."""
import json
import math

import pytest
import torch
from torch.nn import functional as F

from course_lib import datasets
from course_lib.rope import apply_rope, rope_table
from course_lib.studies import (w2_audit, w2_audit_memory, w2_audit_plan, w2_audit_public, w2_audit_results,
                                w2_audit_tasks)
from course_lib.w2_attention import W2Attention, gaussian_overlap, w2_scores
from course_lib.studies.study import parameters
from course_lib.studies.w2_audit_models import (MECHANISMS, AuditAttention, AuditModel, Overlap, attend,
                                                equal_hidden, in_parts, raw_scores)
from references import same_numbers

PIECE = "settings", "loss", "parameters", "curve"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def gaussians(*shape, seed=0):
    mu, raw = torch.randn(2, *shape, generator=seeded(seed), dtype=torch.float64)
    return torch.cat([mu, F.softplus(raw)], -1)


def test_repeated_tokens_and_the_floor():
    tokens = datasets.repeated_tokens(3, seeded())
    assert tokens.shape == (3, 128) and torch.equal(tokens[:, :64], tokens[:, 64:]) and tokens.max() < 1024
    # 127 targets, new at places 1 to 63: who knows the rest for certain still pays for these.
    assert len(tokens[0, 1:64]) / len(tokens[0, 1:]) * math.log(1024) == pytest.approx(w2_audit_tasks.FLOOR)
    assert round(w2_audit_tasks.FLOOR, 4) == 3.4384
    inputs, at, answers = w2_audit_tasks.copied(seeded())
    assert torch.equal(answers, inputs.gather(1, at - 63)) and inputs.shape[1] == 127


def test_associative_recall_gives_no_answer_away():
    vocab, n, pairs = 512, 64, 8
    tokens, at, answers = datasets.associative_recall(200, seeded(), vocab, n, pairs)
    keys, values = tokens[:, 0:2 * pairs:2], tokens[:, 1:2 * pairs:2]
    assert torch.equal(tokens.gather(1, at), keys) and torch.equal(answers, values)
    assert (tokens[:, 2 * pairs:] < vocab // 2).all()                   # no value after the pairs
    assert ((tokens[:, 2 * pairs:] > 0).sum(1) == pairs).all()  # every key once more, at a place of its own
    assert all(len(row.unique()) == pairs for row in keys) and keys.min() > 0 and keys.max() < vocab // 2
    # Neither the place nor the order tells the value: the key at the first place asked is any of the eight.
    assert len(at.argmin(1).unique()) == pairs


def test_noisy_recall_hides_the_label_and_tells_the_noise():
    features, answers = datasets.noisy_recall(4000, seeded())
    x, sizes, label = features[..., :4], features[..., 4:8], features[..., 8:]
    assert (label[:, -1] == F.one_hot(torch.tensor(16), 17)).all() and (label[:, :-1, 16] == 0).all()
    # the answer is among the labels shown
    assert (label[:, :-1, :16].sum(1).gather(1, answers[:, None]) > 0).all()
    for size in (0.1, 1.5):  # a measurement is N(0, 1) and its noise
        assert x[sizes == size].std().item() == pytest.approx(math.hypot(1, size), rel=0.02)


def test_the_tree():
    above = datasets.tree(depth=2, branching=2)     # 0; 1 2; 3 4 5 6
    assert (above.nonzero().tolist() == [[1, 0], [2, 0], [3, 0], [3, 1], [4, 0], [4, 1], [5, 0], [5, 2],
                                         [6, 0], [6, 2]])
    assert not (above & above.T).any()
    reached = above.float() @ above.float() > 0
    assert (above | ~reached).all()                 # what lies above what lies above lies above


def test_held_out_pairs_are_not_trained_on():
    above = datasets.tree()
    seen, held = w2_audit_tasks.split_pairs(above, 0)
    assert not (seen & held).any() and not seen.diagonal().any() and not held.diagonal().any()
    assert (seen | held).sum() == 121 * 120
    down = held & above
    assert 40 < down.sum() < 90 and torch.equal(held & above.T, down.T)         # each with its reverse
    parents = [(node, (node - 1) // 3) for node in range(1, 121)]
    assert all(seen[pair] for pair in parents)      # the held-out pairs follow from these by transitivity


def test_scores_and_gradients_of_the_overlap():
    q, k = gaussians(2, 3, 5, 4).requires_grad_(), gaussians(2, 3, 5, 4, seed=1).requires_grad_()
    mu_q, sigma_q = q[..., :, None, :].chunk(2, -1)
    mu_k, sigma_k = k[..., None, :, :].chunk(2, -1)
    want = gaussian_overlap(mu_q, sigma_q, mu_k, sigma_k)
    got = raw_scores(q, k, "overlap")
    same_numbers(got, want, (q, k))


def test_overlap_in_parts_is_the_whole(monkeypatch):
    inputs = [x.contiguous() for side in (0, 1)
              for x in gaussians(5, 3, 4, seed=side).transpose(1, 2).chunk(2, 1)]
    whole = Overlap.apply(*inputs)
    assert len(list(in_parts(*inputs))) == 1
    monkeypatch.setattr(
        "course_lib.studies.w2_audit_models.in_parts", lambda *x: zip(*(part.split(2) for part in x)))
    torch.testing.assert_close(Overlap.apply(*inputs), whole, rtol=0, atol=0)
    assert torch.autograd.gradcheck(Overlap.apply, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_attend_is_causal_softmax_of_the_scores(mechanism):
    wide = (lambda x: x) if mechanism != "softmax" else (lambda x: x[..., :4])
    q, k = wide(gaussians(2, 3, 7, 4)), wide(gaussians(2, 3, 7, 4, seed=1))
    v = torch.randn(2, 3, 7, 4, generator=seeded(2), dtype=torch.float64)
    scale = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    scores = raw_scores(q, k, mechanism) * scale[:, None, None]
    want = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(attend(q, k, v, scale, mechanism), want)


def test_w2_is_the_chapters_module():
    torch.manual_seed(0)
    ours, chapters, x = AuditAttention(16, 2, "w2"), W2Attention(16, 2), torch.randn(2, 9, 16)
    names = [name + ".weight" for name in ("q_proj", "k_proj", "v_proj", "out_proj")]
    chapters.load_state_dict({name: ours.state_dict()[name] for name in names}, strict=False)
    torch.testing.assert_close(ours.log_scale.exp(), 1 / chapters.tau)      # the start is the same as well
    torch.testing.assert_close(ours(x, None), chapters(x), rtol=1e-4, atol=1e-5)


def test_what_the_published_percentages_count():
    count = {(name, width): parameters(AuditModel(1024, 1024, width, 4 * width, 4, name))
             for name in ("softmax", "w2") for width in (64, 96)}
    assert count["softmax", 96] == 492_008 and count["w2", 64] == 278_856
    assert round(100 * (1 - count["w2", 64] / count["softmax", 96])) == 43          # two widths
    extra = {width: count["w2", width] - count["softmax", width] for width in (64, 96)}
    assert extra == {width: 2 * 2 * width**2 for width in (64, 96)}  # q_proj and k_proj, in two layers
    assert ({width: round(100 * extra[width] / count["softmax", width], 1) for width in extra}
            == {64: 6.2, 96: 7.5})


@pytest.mark.parametrize("task", ["noisy", "mqar", "fair"])
def test_equal_parameters(task):
    arms = w2_audit_plan.SWEPT[task][1]
    count = {arm: parameters(AuditModel(64, 64, own["width"], own["hidden"], 2, own["mechanism"]))
             for arm, own in arms.items() if task != "fair" or arm != "w2"}
    for arm, number in count.items():
        assert 0 <= count["softmax"] - number < 0.005 * count["softmax"], arm
    assert equal_hidden(64, 256, "w2") == 213


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scores_start_with_the_same_spread(mechanism):
    torch.manual_seed(0)
    model = AuditModel(64, 64, 32, 64, 2, mechanism)
    tokens = torch.randint(64, (4, 20), generator=seeded())
    assert model.start_scores(tokens) != [1.0, 1.0]
    before = [block.attention.log_scale.clone() for block in model.blocks]
    model.start_scores(tokens)
    # Measuring sets nothing.
    assert all(torch.equal(a, block.attention.log_scale) for a, block in zip(before, model.blocks))
    assert model.start_scores(tokens, 1.0) == [1.0, 1.0]
    assert model.start_scores(tokens) == [1.0, 1.0]


@pytest.mark.parametrize("task", ["public", "mqar", *(
    pytest.param(task, marks=pytest.mark.slow) for task in ("published", "fair", "noisy", "hierarchy"))])
def test_a_run_repeats_and_its_seed_matters(task):
    few = {"steps": 2, "seed": 3}
    mechanism = "overlap" if task == "public" else "w2"
    settings = ([s for s in w2_audit_plan.plan({}) if s["task"] == task and s["mechanism"] == mechanism][0]
                | few)
    if task != "hierarchy":
        settings |= {"width": 16, "hidden": 16, "heads": 2}
    one, again, other = (w2_audit_tasks.run(s) for s in (settings, dict(settings), settings | {"seed": 4}))
    assert one == again and one["loss"] != other["loss"]


def test_tied_projections_cannot_tell_up_from_down():
    settings = {"task": "hierarchy", "steps": 20, "seed": 0, "rate": 1e-2}
    for mechanism in MECHANISMS:
        assert w2_audit_tasks.run(settings | {"mechanism": mechanism, "tied": True})["direction"] == 0.5
        assert w2_audit_tasks.run(settings | {"mechanism": mechanism, "tied": False})["direction"] != 0.5


@pytest.mark.parametrize("score, width, heads, logged",
                         [("softmax", 96, 6, 492_096), ("overlap", 64, 4, 278_912)])
def test_public_models_have_the_parameters_of_the_log(score, width, heads, logged):
    assert parameters(w2_audit_public.PublicModel(1024, width, 4 * width, heads, score)) == logged


def cloud(seed, n=5):
    mu, raw = torch.randn(2, 2, 3, n, 8, generator=seeded(seed), dtype=torch.float64)
    return mu, F.softplus(raw) + 0.1


def test_the_four_scores_are_their_formulas():
    (mu_q, sigma_q), (mu_k, sigma_k) = cloud(0), cloud(1)
    scores = {name: score(mu_q, sigma_q, mu_k, sigma_k) for name, score in w2_audit_public.SCORES.items()}
    torch.testing.assert_close(scores["exact"], w2_scores(mu_q, sigma_q, mu_k, sigma_k, 1.0), rtol=1e-5,
                               atol=1e-5)
    pairs = (x[..., :, None, :] if i < 2 else x[..., None, :, :]
             for i, x in enumerate((mu_q, sigma_q, mu_k, sigma_k)))
    torch.testing.assert_close(scores["overlap"], gaussian_overlap(*pairs))
    one = [sigma.mean(-1, keepdim=True).expand_as(sigma) for sigma in (sigma_q, sigma_k)]
    torch.testing.assert_close(scores["scalar"], w2_audit_public.overlap(mu_q, one[0], mu_k, one[1]))
    # The separable score is a dot product of width d and a bias per key, but for a number per row.
    q, k = mu_q / sigma_q.sqrt(), mu_k / sigma_k.sqrt()
    bias = -0.5 * (k.square() + sigma_k.log()).sum(-1)
    torch.testing.assert_close(scores["separable"].softmax(-1), (q @ k.mT + bias[..., None, :]).softmax(-1))
    for name, other in (("exact", "overlap"), ("overlap", "scalar"), ("overlap", "separable")):
        assert (scores[name].softmax(-1) - scores[other].softmax(-1)).abs().max() > 0.05


@pytest.mark.parametrize("name, relative",
                         [("exact", True), ("overlap", False), ("scalar", True), ("separable", True)])
def test_which_of_the_four_are_relative(name, relative):
    (mu_q, sigma_q), (mu_k, sigma_k) = cloud(0), cloud(1)
    cos, sin = rope_table(40, 8, dtype=torch.float64)
    at = lambda start: lambda x: apply_rope(x, cos, sin, torch.arange(start, start + 5), layout="half")
    here, there = (w2_audit_public.SCORES[name](mu_q, sigma_q, mu_k, sigma_k, at(start)) for start in (0, 20))
    assert ((here - there).abs().max().item() < 1e-9) == relative


def pretend(settings):
    """A finished run whose loss prefers the rate 3e-3 (or 1e-2 in the tree)."""
    loss = abs(math.log(settings["rate"] / (1e-2 if settings["task"] == "hierarchy" else 3e-3)))
    auc = {"auc": 1 - loss / 10, "direction": 1.0} if settings["task"] == "hierarchy" else {}
    return {"settings": settings, "loss": loss + 1e-3 * settings["seed"], "parameters": 1, "seconds": 1.0,
            **auc}


def test_every_setting_is_in_the_key():
    settings = w2_audit_plan.plan({})[0]
    for name, value in settings.items():
        changed = settings | {name: f"{value}x"}
        assert w2_audit_plan.key(changed) != w2_audit_plan.key(settings)
    keys = [w2_audit_plan.key(s) for s in w2_audit_plan.plan({})]
    assert len(set(keys)) == len(keys)


def test_final_runs_wait_for_the_sweep_and_use_its_best_rate():
    runs = {}
    finals = [s for s in w2_audit_plan.plan(runs) if s["stage"] == "final"
              and s["task"] in w2_audit_plan.SWEPT]
    assert finals and all(s["rate"] is None for s in finals)
    while left := w2_audit_plan.missing(runs):
        ready = [s for s in left if s["rate"] is not None]
        assert ready
        runs |= {w2_audit_plan.key(s): pretend(s) for s in ready}
    for task, (_, arms, rates, sweep_seeds, final_seeds) in w2_audit_plan.SWEPT.items():
        rows = w2_audit_results.summary({"runs": runs}, task)
        assert ([row["arm"] for row in rows] == list(arms) and {row["seeds"] for row in rows}
                == {len(final_seeds)})
        assert {row["rate"] for row in rows} == {1e-2 if task == "hierarchy" else 3e-3}
        assert not set(sweep_seeds) & set(final_seeds) and len(final_seeds) >= 5
    diverged = [pretend({"task": "fair", "rate": rate, "seed": 0}) | {"loss": loss}
                for rate, loss in ((1e-2, None), (1e-3, 0.5))]
    assert w2_audit_plan.best_rate(diverged) == 1e-3


def test_students_t_and_bonferroni():
    for freedom, t in ((1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262)):        # from a printed table
        assert w2_audit_results.student(freedom) == pytest.approx(t, abs=2e-3)
    assert w2_audit_results.student(4, 0.99) == pytest.approx(4.604, abs=2e-3)
    values = [0.1, 0.3, 0.2, 0.25, 0.15]
    (middle, half), (same, wider) = w2_audit_results.interval(values), w2_audit_results.interval(values, 5)
    assert middle == same == pytest.approx(0.2) and wider / half == pytest.approx(4.604 / 2.776, rel=1e-3)
    assert w2_audit_results.interval([1.0]) == (1.0, None)


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    short = {"hierarchy": ({"steps": 2}, {"w2": {"mechanism": "w2", "tied": False}}, (1e-3, 1e-2), (0,),
                           (100, 101))}
    plan = lambda runs: list(w2_audit_plan.swept_runs("hierarchy", runs))
    monkeypatch.setattr(w2_audit_plan, "SWEPT", short)
    for module in (w2_audit, w2_audit_plan):
        monkeypatch.setattr(module, "plan", plan)
    monkeypatch.setattr(w2_audit, "memory_section", dict)
    monkeypatch.setattr(w2_audit, "noisy_rules", dict)
    out = tmp_path / "audit.json"
    assert w2_audit.audit_command(["--out", str(out), "--workers", "1", "--at-most", "3"]) == 0
    part = w2_audit_results.results(out)
    assert len(part["runs"]) == 3 and not part["complete"]
    w2_audit.audit_command(["--out", str(out), "--workers", "1"])
    whole = w2_audit_results.results(out)
    assert len(whole["runs"]) == 4 and whole["complete"] and list(tmp_path.iterdir()) == [out]
    assert all(whole["runs"][name] == one for name, one in part["runs"].items())
    assert whole["wall_seconds"] > part["wall_seconds"]
    assert "4/4" in capsys.readouterr().out
    w2_audit.audit_command(["--out", str(out), "--workers", "1"])
    assert w2_audit_results.results(out)["runs"] == whole["runs"]


@pytest.fixture(scope="module")
def audit():
    return w2_audit_results.results()


def test_the_file_is_complete(audit):
    assert audit["complete"] and not w2_audit_plan.missing(audit["runs"])
    # and holds nothing else
    assert set(audit["runs"]) == {w2_audit_plan.key(s) for s in w2_audit_plan.plan(audit["runs"])}
    for name, one in audit["runs"].items():
        assert name == w2_audit_plan.key(one["settings"]) and all(piece in one for piece in PIECE)
        assert one["loss"] is not None or one["settings"]["stage"] == "sweep"      # None: it diverged
        assert ("cpu_seconds" in one) != ("seconds" in one)
        if one["settings"]["task"] in w2_audit_plan.SWEPT:      # the same start for all
            assert one["score_std"] == pytest.approx([1.0] * len(one["score_std"]), abs=1e-3)
    assert audit["command"] == "python -m course_lib w2-audit" and audit["floor"] == 3.4384
    assert 0 < audit["wall_seconds"] < 5 * 3600
    assert json.loads((datasets.DATA / "w2_audit.json").read_text()) == audit


def test_the_file_holds_what_the_code_counts(audit):
    for name, rule in w2_audit_tasks.noisy_rules().items():
        assert audit["noisy_rules"][name] == pytest.approx(rule, abs=1e-3)
    for form, row in audit["memory"]["attention"].items():
        assert row["128"] == w2_audit_memory.memory_bytes(form, 128)
    for row in audit["memory"]["model"]:
        assert row == w2_audit_memory.model_bytes(row["mechanism"], row["width"], row["n"])


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["softmax", "w2", "overlap"])
def test_a_run_made_again_is_the_one_in_the_file(audit, arm):
    kept = [one for (name, _), runs in w2_audit_results.finals(audit, "hierarchy").items() if name == arm
            for one in runs][0]
    again = w2_audit_tasks.run(kept["settings"])
    assert again["parameters"] == kept["parameters"]
    assert again["curve"][:3] == pytest.approx(kept["curve"][:3], abs=0.02)
    assert again["auc"] == pytest.approx(kept["auc"], abs=0.03)


@pytest.mark.slow
def test_the_slice_repeats_the_headlines_cause(audit):
    found = w2_audit_results.five_second_slice()
    assert found["softmax", 1e-3] > 3 > 1 > found["softmax", 5e-3]
    assert found["w2", 5e-3] < 1


def test_every_arm_is_drawn_and_the_low_rate_has_five_seeds_of_equal_parameters():
    audit = w2_audit_results.results()
    drawn = {arm for arms in w2_audit_results.rate_panels(audit).values() for arm in arms}
    ran = [one["settings"] for one in audit["runs"].values()]
    assert drawn == {s["arm"] for s in ran if s["stage"] == "sweep" or s["task"] == "published"}
    for task in w2_audit_plan.LOW_TASKS:
        groups = w2_audit_results.finals(audit, task, "low rate")
        sizes = [runs[0]["parameters"] for runs in groups.values()]
        assert len(groups) == 2 and max(sizes) < 1.01 * min(sizes)
        seeds = [len(w2_audit_results.seeded(audit, task, arm, stage="low rate"))
                 for arm in ("softmax", "w2")]
        assert seeds == [5, 5]
