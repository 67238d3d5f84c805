"""Code that CUDA does not have: a static_assert in its place says so."""
from __future__ import annotations

import re

from ..text.tokens import match_angle
from .passes import STATEMENT_END, Pass

HOST_CLASSES = {"cout", "cerr", "vector", "string", "map"}
# words that are not for kernels, each with the start of the next token
HOST_WORDS = {
    r"(calloc|realloc) \(": "it is a function of the host; use malloc",
    r"(throw|try) ": "a kernel has no exceptions; use assert, or write an error code to an array",
    r"(fprintf|puts|putchar|fputs) \(": "it is a function of the host; use printf",
    r"(terminate|raise|_exit|_Exit|quick_exit) \(": "it is a function of the host; use assert",
}


class Refusals(Pass):
    def called_as_a_function(self, index: int):
        owner = self.file.owner[index] if self.file else None
        if not owner or not owner.body[0] < index < owner.body[1]:
            return
        before = self.tokens[index - 1].text
        after = index + 1
        if self.tokens[after].text == "<":
            close = match_angle(self.tokens, after)
            after = close + 1 if close else after
        if before in STATEMENT_END | {")", "else"} and self.tokens[after].text == "(":
            name = self.tokens[index].text
            self.reject(index, f"kernel {name} is called without <<<grid, block>>>")

    def of_the_host(self, index: int):
        words = [t.text for t in self.tokens[index:index + 3]]
        if words[1:2] == ["::"] and words[2] in HOST_CLASSES and self.device_function(index):
            instead = "use printf" if words[2] in ("cout", "cerr") else "use an array"
            self.reject(index, f"std::{words[2]} is of the host, and not to be had in a kernel; {instead}")

    def called_from_a_kernel(self, index: int):
        """A call of a host function; a variable of the same name, a lambda say, is none."""
        owner, name = self.device_function(index), self.tokens[index].text
        if not owner:
            return
        own = [i for i in range(owner.parameters[0], owner.body[1]) if self.tokens[i].text == name]
        if all(self.tokens[i + 1].text in ("(", "<") and self.tokens[i - 1].text not in (".", "->", "::")
               and (self.tokens[i - 1].kind != "name" or self.tokens[i - 1].text in ("return", "else"))
               for i in own):
            self.reject(index, f"{name} is a function of the host; with __device__ before it, a kernel may "
                        "call it")

    def word_of_the_host(self, index: int):
        word = self.tokens[index].text
        owner = self.device_function(index)
        if (owner and owner.body[0] < index < owner.body[1] and self.tokens[index - 1].text not in (".", "->")
                and word not in {f.name for f in self.file.functions}):
            after = f"{word} {self.tokens[index + 1].text}"
            for pattern, sentence in HOST_WORDS.items():
                if re.match(pattern, after):
                    self.reject(index, f"{word}: {sentence}")
