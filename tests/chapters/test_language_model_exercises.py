"""The references of chapter 10's exercises against the course's modules."""
import math

import torch

from course_lib import cuda, datasets
from course_lib.language_model import training
from course_lib.exercises.declare import find
from course_lib.language_model import Config, LanguageModel, RMSNorm
from course_lib.kv_cache.sampling import next_token_probabilities
from course_lib.paged_attention.serving import Engine
from course_lib.language_model.tokenizers import BytePairTokenizer
from references import reference


def test_the_first_pair_is_the_tokenizers_first_merge():
    text = "then he hit the other hat with the hat of the other man"
    words = BytePairTokenizer.WORDS.findall(text)
    a, b = BytePairTokenizer.train(text, 1).vocabulary[0]
    assert reference("10.1")(words, [1] * len(words)) == (chr(a), chr(b))


def test_the_schedule():
    for step, steps, peak, warmup in ((0, 100, 1.0, 10), (60, 100, 2e-3, 10), (99, 100, 1.0, 0)):
        assert math.isclose(reference("10.3")(step, steps, peak, warmup, 0.1),
                            training.learning_rate(step, steps, peak, warmup))


def test_nucleus_and_penalty():
    generator = torch.Generator().manual_seed(0)
    logits, seen = torch.randn(20, generator=generator), torch.randint(20, (9,), generator=generator)
    for p in (0.3, 0.7, 1.0):
        torch.testing.assert_close(reference("10.7")(logits.softmax(-1), p),
                                   next_token_probabilities(logits, top_p=p))
    torch.testing.assert_close(reference("10.11")(logits, seen, 1.3).softmax(-1),
                               next_token_probabilities(logits, repetition_penalty=1.3, seen=seen))


def test_the_fused_norm_is_the_models():
    torch.manual_seed(0)
    norm = RMSNorm(96)
    norm.weight.data.uniform_(0.5, 2)
    x, delta, normed = torch.randn(5, 96), torch.randn(5, 96), torch.empty(5, 96)
    want = x + delta
    cuda.compile(find("10.8").solution).add_norm[5, 128, 4 * 96](x, delta, norm.weight.detach(), normed, 96,
                                                                 norm.eps)
    torch.testing.assert_close(x, want)
    torch.testing.assert_close(normed, norm(want).detach(), atol=1e-5, rtol=1e-5)


def test_the_shared_prompt():
    """The engine computes what exercise 10.9 says."""
    torch.manual_seed(0)
    engine = Engine(LanguageModel(Config(11, n_layers=1, n_heads=2, d_model=8, d_hidden=8)), n_blocks=40)
    engine.add_request([1] * 200, 20, n_samples=4)
    computed = 0
    while engine.busy:
        computed += sum(engine.step().scheduled.values())
    assert computed == find("10.9").answer


def test_the_entropy_of_a_chain_with_a_grammars_floor():
    """The nouns alone are a chain that forgets: its entropy rate is the entropy of one choice."""
    p = torch.tensor([chance for chance, _ in datasets.GRAMMAR["noun"]], dtype=torch.float64)
    want = float(-(p * p.log()).sum())
    assert math.isclose(reference("10.10")(p.expand(3, 3)), want, rel_tol=1e-9)


def test_the_layers_that_fit():
    share = {"full": 1, "sliding": 1 / 8, "state": 1 / 64}
    fits = {key for key, text in find("10.5").options.items()
            if sum(int(n) * share[kind] for n, kind in (part.split() for part in text.split(", "))) <= 0.3
            * 8}
    assert fits == {"b", "d", "e"}
