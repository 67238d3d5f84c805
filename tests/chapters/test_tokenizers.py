"""Byte pairs: what is merged, what comes back; and tokens on disk."""
import errno
import os

import pytest
import torch
from hypothesis import given, settings, strategies as st

from course_lib.language_model.tokenizers import (BytePairTokenizer, CharTokenizer, tokenizer_of,
                                                  tokens_on_disk)

TEXT = "low low low low low lower lower newest newest newest newest newest newest widest widest widest\n"
TRAINED = BytePairTokenizer.train(TEXT * 3 + "naïve café — ναι", 40)


def test_the_most_frequent_pairs_are_merged_first():
    # Of 6 newest and 3 widest: e s, then es t (9 each); then l o (7) before lo w (7), as their numbers are
    # smaller.
    tokenizer = BytePairTokenizer.train(TEXT, 4)
    assert [tokenizer.pieces[256 + i] for i in range(4)] == [b"es", b"est", b"lo", b"low"]
    assert len(tokenizer) == 260
    assert [tokenizer.pieces[t] for t in tokenizer.encode("lowest")] == [b"low", b"est"]


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_comes_back(text):
    assert TRAINED.decode(TRAINED.encode(text)) == text
    assert len(TRAINED.encode(text)) <= len(text.encode())


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="ab \n.", max_size=200), st.integers(0, 20))
def test_training_is_repeatable_and_its_words_are_cut_as_they_were(text, n_merges):
    tokenizer, again = BytePairTokenizer.train(text, n_merges), BytePairTokenizer.train(text, n_merges)
    assert tokenizer.vocabulary == again.vocabulary and len(tokenizer.vocabulary) <= n_merges
    assert tokenizer.decode(tokenizer.encode(text)) == text
    counts = torch.bincount(tokenizer.encode(text), minlength=len(tokenizer))
    assert counts[256 + len(tokenizer.vocabulary) - 1:].sum() > 0 or not tokenizer.vocabulary, (
        "the last merge is in use")


def test_half_a_character_and_a_vocabulary_that_is_none():
    assert TRAINED.decode("é".encode()[:1]) == "\ufffd"
    with pytest.raises(ValueError, match="^vocabulary must "):
        BytePairTokenizer([(97, 300)])
    with pytest.raises(ValueError, match="^n_merges must "):
        BytePairTokenizer.train("abc", -1)
    assert tokenizer_of([[97, 98]]).encode("abab").tolist() == [256, 256]
    assert tokenizer_of("ab").encode("ba").tolist() == [1, 0]


def test_text_is_encoded_once_and_mapped(tmp_path):
    calls = []

    class Counted(CharTokenizer):
        def encode(self, text):
            calls.append(text)
            return super().encode(text)

    tokenizer = Counted.from_text(TEXT)
    first, second = (tokens_on_disk(TEXT, tokenizer, tmp_path) for _ in range(2))
    assert len(calls) == 1 and torch.equal(first, second) and first.dtype == torch.int16
    assert tokenizer.decode(first) == TEXT and len(os.listdir(tmp_path)) == 1
    tokens_on_disk(TEXT + "low", tokenizer, tmp_path)
    tokens_on_disk(TEXT, CharTokenizer(tokenizer.vocabulary + "#"), tmp_path)
    assert len(os.listdir(tmp_path)) == 3, "another text or another vocabulary is another file"
    assert len(tokens_on_disk("", tokenizer, tmp_path)) == 0


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device; nothing was written") as raised:
        tokens_on_disk(TEXT, CharTokenizer.from_text(TEXT), tmp_path)
    assert (raised.value.errno == errno.ENOSPC and raised.value.filename.startswith(str(tmp_path))
            and os.listdir(tmp_path) == [])
