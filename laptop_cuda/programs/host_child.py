"""The process that a host function runs in: memory in, the call, memory and launches out."""
import ctypes
import pickle
from pathlib import Path

from ..launch.library import Library, read_table
from .child import Child, main


class HostCall(Child):
    def __init__(self, job: dict):
        super().__init__(job)
        self.results, self.error = [], None
        self.library.laptop_managed.restype = ctypes.c_void_p
        self.library.laptop_managed.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint]

    def ended(self, c_launch, c_result):
        self.latest = super().ended(c_launch, c_result)
        return self.latest

    def counted(self, result) -> dict:
        return {}                        # the parent gets the result itself

    def after_launch(self, c_launch, c_result) -> dict | None:
        row = super().after_launch(c_launch, c_result)
        result, error = self.latest
        if row and error:
            self.error = self.error or error
        elif row:
            self.results.append(result)
        return row

    def run(self) -> int:
        asked = pickle.loads(Path(self.job["asked"]).read_bytes())
        symbols = {row.name: row for row in read_table(self.library) if row.kind == "symbol"}
        variables = Library(Path(self.job["library"]), self.library, {}, {}, symbols, asked["globals"])
        variables.hold()
        memory = [(self.library.laptop_managed(max(len(data), 1), name.encode(), itemsize), len(data))
                  for name, itemsize, data in asked["memory"]]
        for (p, size), (_, _, data) in zip(memory, asked["memory"]):
            ctypes.memmove(p, data, size)
        cells = [self.cell(value, memory) for value in asked["arguments"]]
        self.begin()
        self.library.laptop_entry_0((ctypes.c_void_p * max(len(cells), 1))(*map(ctypes.addressof, cells)))
        answer = {"memory": [ctypes.string_at(*piece) for piece in memory],
                  "globals": variables.snapshot(), "results": self.results, "error": self.error}
        Path(self.job["answer"]).write_bytes(pickle.dumps(answer))
        return 0

    @staticmethod
    def cell(value, memory: list[tuple[int, int]]):
        """What an argument points at: a value's bytes, or an address."""
        if isinstance(value, bytes):
            return ctypes.create_string_buffer(value, len(value))
        return ctypes.c_void_p(value and memory[value[0]][0] + value[1])


if __name__ == "__main__":
    main(HostCall)
