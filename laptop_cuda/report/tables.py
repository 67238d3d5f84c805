"""Rows as a table: of text for a terminal, of HTML for a notebook."""
import html


def text_table(head: tuple, rows: list[tuple]) -> str:
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    def line(row):
        cells = [str(c).ljust(w) if i in (0, len(head) - 1) else str(c).rjust(w)
                 for i, (c, w) in enumerate(zip(row, widths))]
        return "  ".join(cells).rstrip()
    return "\n".join([line(head), "  ".join("-" * w for w in widths), *map(line, rows)])


def html_table(head: tuple, rows: list[tuple], code: bool = False) -> str:
    def cell(tag, text, i):
        last = i == len(head) - 1
        align = "left" if i == 0 or last else "right"
        text = html.escape(str(text))
        text = f"<code>{text}</code>" if code and last and tag == "td" else text
        return f'<{tag} style="text-align:{align}">{text}</{tag}>'
    body = "".join("<tr>" + "".join(cell("td", c, i) for i, c in enumerate(row)) + "</tr>" for row in rows)
    return ("<table><thead><tr>" + "".join(cell("th", c, i) for i, c in enumerate(head)) + "</tr></thead>"
            f"<tbody>{body}</tbody></table>")
