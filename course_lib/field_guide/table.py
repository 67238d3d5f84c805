"""A table that a notebook shows as such and a terminal as text."""
import html
from dataclasses import dataclass, field


@dataclass
class Table:
    title: str
    head: list[str]
    rows: list[list[str]]
    remarks: list[str] = field(default_factory=list)

    def __str__(self):
        lines = [self.head, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        told = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([self.title, *told, *self.remarks])

    __repr__ = __str__

    def _repr_html_(self):
        columns = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        remarks = "".join(f"<p>{html.escape(remark)}</p>" for remark in self.remarks)
        return (f"<p>{html.escape(self.title)}</p><table><thead><tr>{columns}</tr></thead>"
                f"<tbody>{rows}</tbody></table>{remarks}")
