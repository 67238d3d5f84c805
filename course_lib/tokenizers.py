"""From text to numbers and back."""
import numpy as np
import torch


class CharTokenizer:
    """One number a character. The vocabulary is a string; a character's number is its place in it."""

    def __init__(self, vocabulary: str):
        if len(set(vocabulary)) != len(vocabulary) or not vocabulary:
            raise ValueError(f"vocabulary must be distinct characters, at least one; got {vocabulary!r}")
        self.vocabulary = vocabulary
        self._number = {character: number for number, character in enumerate(vocabulary)}

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> torch.Tensor:
        """(len(text),) of int64."""
        try:
            numbers = np.fromiter((self._number[c] for c in text), np.int64, len(text))
        except KeyError as error:
            raise ValueError(f"text has {error.args[0]!r}, which is not in the vocabulary") from None
        return torch.from_numpy(numbers)

    def decode(self, tokens) -> str:
        return "".join(self.vocabulary[int(t)] for t in tokens)
