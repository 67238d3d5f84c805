"""malloc, free, new and delete in a kernel become calls of the device's heap."""
from __future__ import annotations

from .passes import Pass

CALLS = {"malloc": "laptop::heap_malloc", "free": "laptop::heap_free"}


class Heap(Pass):
    def heap(self, index: int):
        owner = self.device_function(index)
        if not owner or not owner.body[0] < index < owner.body[1]:
            return
        before, token, after = self.tokens[index - 1:index + 2]
        if token.text in CALLS:
            own = token.text in {f.name for f in self.file.functions}
            if after.text == "(" and not own and before.text not in (".", "->"):
                self.edits.replace(token.start, token.end, CALLS[token.text])
        elif token.text == "new":
            if after.text != "(" and before.text != "operator":      # `new (place) T` asks for no heap
                self.edits.insert(token.end, " (laptop::heap)")
        elif before.text not in ("=", "operator"):
            self.delete(index)

    def delete(self, index: int):
        array = self.tokens[index + 1].text == "["
        last = self.tokens[index + 2] if array else self.tokens[index]
        self.edits.replace(self.tokens[index].start, last.end,
                           f"laptop::heap_delete{'_array' if array else ''}(")
        self.edits.insert(self.tokens[self.statement(index)[1]].start, ")")
