"""From text to numbers and back: a number a character, or a number a frequent piece of text."""
import hashlib
import os
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch


class CharTokenizer:
    """One number a character. The vocabulary is a string; a character's number is its place in it."""

    def __init__(self, vocabulary: str):
        if not isinstance(vocabulary, str) or len(set(vocabulary)) != len(vocabulary) or not vocabulary:
            raise ValueError(f"vocabulary must be distinct characters, at least one; got {vocabulary!r}")
        self.vocabulary = vocabulary
        self._number = {character: number for number, character in enumerate(vocabulary)}

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        return cls("".join(sorted(set(_text(text)))))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> torch.Tensor:
        """(len(text),) of int64."""
        try:
            numbers = np.fromiter((self._number[c] for c in _text(text)), np.int64, len(text))
        except KeyError as error:
            raise ValueError(f"text has {error.args[0]!r}, which is not in the vocabulary") from None
        return torch.from_numpy(numbers)

    def decode(self, tokens) -> str:
        return "".join(self.vocabulary[t] for t in _checked(tokens, len(self)))


class BytePairTokenizer:
    """The 256 bytes, and pairs of tokens that were merged into one because they often stood together.

    vocabulary is the list of pairs in the order in which they were merged: pair i is token 256 + i. A pair never reaches
    over the border of a word; a word carries the blank before it. Any text can be encoded, and comes back as it was.
    """
    WORDS = re.compile(r" ?\w+| ?[^\w\s]+|\s+(?=\S)|\s+")

    def __init__(self, vocabulary):
        self.vocabulary = [tuple(pair) for pair in vocabulary]
        self.pieces = [bytes([byte]) for byte in range(256)]
        for number, pair in enumerate(self.vocabulary):
            if len(pair) != 2 or not all(isinstance(t, int) and 0 <= t < 256 + number for t in pair):
                raise ValueError(f"vocabulary must be pairs of earlier tokens; got {pair} for token {256 + number}")
            self.pieces.append(self.pieces[pair[0]] + self.pieces[pair[1]])
        self._rank = {pair: number for number, pair in enumerate(self.vocabulary)}
        self._words = {}                # words that were encoded before

    @classmethod
    def train(cls, text: str, n_merges: int) -> "BytePairTokenizer":
        """Merge the most frequent pair, n_merges times; of equally frequent ones, the one with the smallest numbers."""
        if not isinstance(n_merges, int) or n_merges < 0:
            raise ValueError(f"n_merges must be an integer of at least 0; got {n_merges!r}")
        counted = Counter(cls.WORDS.findall(_text(text)))
        words, counts = [list(word.encode()) for word in counted], list(counted.values())
        pairs, where = Counter(), defaultdict(set)      # how often a pair occurs, and in which words
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
        for word in self.WORDS.findall(_text(text)):
            if word not in self._words:
                self._words[word] = self._encode_word(list(word.encode()))
            tokens += self._words[word]
        return torch.tensor(tokens, dtype=torch.int64)

    def _encode_word(self, word):
        """Merge in the order of training, the earliest pair first: so it is cut as it was there."""
        while len(word) > 1:
            first = min(zip(word, word[1:]), key=lambda pair: self._rank.get(pair, len(self._rank)))
            if first not in self._rank:
                break
            word = _merged(word, first, 256 + self._rank[first])
        return word

    def decode(self, tokens) -> str:
        """Tokens that cut a character in half are shown as U+FFFD."""
        return b"".join(self.pieces[t] for t in _checked(tokens, len(self))).decode(errors="replace")


def _text(text):
    if not isinstance(text, str):
        raise ValueError(f"text must be a string; got {type(text).__name__}")
    return text


def _checked(tokens, n):
    tokens = [int(t) for t in tokens]
    if tokens and not 0 <= min(tokens) <= max(tokens) < n:
        raise ValueError(f"tokens must lie in 0 to {n - 1}; got {min(tokens)} to {max(tokens)}")
    return tokens


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
    """(number of tokens,) of int16, mapped from a file of the build cache: encoded once, and read as it is needed."""
    if len(tokenizer) > 2 ** 15:
        raise ValueError(f"tokenizer must have at most 32768 tokens, for int16; got {len(tokenizer)}")
    if folder is None:
        from laptop_cuda.build import cache

        folder = cache().parent / "tokens"
    known_by = hashlib.sha256(f"{tokenizer.vocabulary!r}\0{text}".encode()).hexdigest()[:20]
    path = Path(folder) / f"{known_by}.bin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            partial.write_bytes(tokenizer.encode(text).numpy().astype(np.int16).tobytes())
            os.replace(partial, path)
        except OSError as error:        # of a full disk it does not say where
            raise OSError(error.errno, f"{error.strerror}; nothing was written", str(path)) from error
        finally:
            partial.unlink(missing_ok=True)
    size = path.stat().st_size // 2
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.int16) if size else torch.zeros(0, dtype=torch.int16)
