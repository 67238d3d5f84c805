"""malloc, free, new and delete in a kernel become calls of the device's heap."""
from .passes import Edits, Part

CALLS = {"malloc": "laptop::heap_malloc", "free": "laptop::heap_free"}


def heap(part: Part, edits: Edits):
    for i in part.all("malloc", "free", "new", "delete"):
        if not part.in_device_body(i):
            continue
        before, token, after = part.tokens[i - 1:i + 2]
        if token.text in CALLS:
            if after.text == "(" and not part.own(token.text) and before.text not in (".", "->"):
                edits.replace(token, token, CALLS[token.text])
        elif token.text == "new":
            if after.text != "(" and before.text != "operator":      # `new (place) T` asks for no heap
                edits.insert(token.end, " (laptop::heap)")
        elif before.text not in ("=", "operator"):
            array = after.text == "["
            last = part.tokens[i + 2] if array else token
            edits.replace(token, last, f"laptop::heap_delete{'_array' if array else ''}(")
            edits.insert(part.tokens[part.statement(i)[1]].start, ")")
