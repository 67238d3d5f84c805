"""From text to numbers and back: one number per character, or per frequent piece of text."""
import hashlib
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch

from course_lib import cuda
from course_lib.checks import check_count
from course_lib.checks.language_model import (check_characters, check_int16, check_known, check_pair,
                                              check_text)
from course_lib.files import write_whole


class CharTokenizer:
    """One number per character: its index in the vocabulary, a string."""

    def __init__(self, vocabulary: str):
        check_characters(vocabulary)
        self.vocabulary = vocabulary
        self._number = {character: number for number, character in enumerate(vocabulary)}

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        return cls("".join(sorted(set(check_text(text)))))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> torch.Tensor:
        """(len(text),) of int64."""
        try:
            numbers = np.fromiter((self._number[c] for c in check_text(text)), np.int64, len(text))
        except KeyError as error:
            raise ValueError(f"text has {error.args[0]!r}, which is not in the vocabulary") from None
        return torch.from_numpy(numbers)

    def decode(self, tokens) -> str:
        return "".join(self.vocabulary[t] for t in check_known(tokens, len(self)))


class BytePairTokenizer:
    """The 256 bytes, and pairs of tokens that were merged because they often follow each other.

    vocabulary is the list of pairs in the order in which they were merged: pair i is token 256 + i. A pair
    never crosses the border of a word, which includes the space before it. decode(encode(text)) is text."""
    WORDS = re.compile(r" ?\w+| ?[^\w\s]+|\s+(?=\S)|\s+")

    def __init__(self, vocabulary):
        self.vocabulary = [tuple(pair) for pair in vocabulary]
        self.pieces = [bytes([byte]) for byte in range(256)]
        for number, pair in enumerate(self.vocabulary):
            check_pair(pair, 256 + number)
            self.pieces.append(self.pieces[pair[0]] + self.pieces[pair[1]])
        self._rank = {pair: number for number, pair in enumerate(self.vocabulary)}
        self._words = {}                # encoded words, kept for the next time

    @classmethod
    def train(cls, text: str, n_merges: int) -> "BytePairTokenizer":
        """Merge the most frequent pair, n_merges times; of equally frequent ones, the first in order."""
        check_count("n_merges", n_merges, 0)
        counted = Counter(cls.WORDS.findall(check_text(text)))
        words, counts = [list(word.encode()) for word in counted], list(counted.values())
        pairs, where = Counter(), defaultdict(set)      # how often each pair occurs, and in which words
        for i, word in enumerate(words):
            for pair in zip(word, word[1:]):
                pairs[pair] += counts[i]
                where[pair].add(i)
        merges = []
        while len(merges) < n_merges:
            best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
            if best is None or pairs[best] < 2:
                break
            for i in where.pop(best):
                for pair in zip(words[i], words[i][1:]):
                    pairs[pair] -= counts[i]
                words[i] = _merged(words[i], best, 256 + len(merges))
                for pair in zip(words[i], words[i][1:]):
                    pairs[pair] += counts[i]
                    where[pair].add(i)
            del pairs[best]
            merges.append(best)
        return cls(merges)

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> torch.Tensor:
        """(number of tokens,) of int64."""
        tokens = []
        for word in self.WORDS.findall(check_text(text)):
            if word not in self._words:
                self._words[word] = self._encode_word(list(word.encode()))
            tokens += self._words[word]
        return torch.tensor(tokens, dtype=torch.int64)

    def _encode_word(self, word):
        """Merge pairs in the order of training, the earliest first: words are split as they were then."""
        while len(word) > 1:
            first = min(zip(word, word[1:]), key=lambda pair: self._rank.get(pair, len(self._rank)))
            if first not in self._rank:
                break
            word = _merged(word, first, 256 + self._rank[first])
        return word

    def decode(self, tokens) -> str:
        """The text; an incomplete character becomes U+FFFD."""
        return b"".join(self.pieces[t] for t in check_known(tokens, len(self))).decode(errors="replace")


def _merged(word, pair, token):
    """The word with every occurrence of the pair, from the left, replaced by the token."""
    out, i = [], 0
    while i < len(word):
        if tuple(word[i:i + 2]) == pair:
            out.append(token)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def tokenizer_of(vocabulary):
    """The tokenizer that has this vocabulary: a string, or a list of pairs."""
    return CharTokenizer(vocabulary) if isinstance(vocabulary, str) else BytePairTokenizer(vocabulary)


def tokens_on_disk(text: str, tokenizer, folder=None) -> torch.Tensor:
    """(number of tokens,) of int16, mapped from a file of the cache: encoded once, read when needed."""
    check_int16(tokenizer)
    folder = Path(cuda.build.cache().parent / "tokens" if folder is None else folder)
    key = hashlib.sha256(f"{tokenizer.vocabulary!r}\0{text}".encode()).hexdigest()[:20]
    path = folder / f"{key}.bin"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            write_whole(path, tokenizer.encode(text).numpy().astype(np.int16).tobytes(), durable=True)
        except OSError as error:        # the error of a full disk names no file
            raise OSError(error.errno, f"{error.strerror}; nothing was written", str(path)) from error
    size = path.stat().st_size // 2
    if not size:
        return torch.zeros(0, dtype=torch.int16)
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.int16)
