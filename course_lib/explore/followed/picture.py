"""A number that is followed: a map of weights, and five steps from one of them to its sectors."""
from functools import cache
from math import ceil, exp

import torch

from course_lib import cuda
from course_lib.explore.followed.recorded import Followed, Number
from course_lib.explore.frame import Canvas, Choice, Explorable, Point, amount
from laptop_cuda.replay.recording import position

STEPS = ("weight", "query and key", "tile, warp, lane", "line", "sectors")
WIDE, LEFT, TOP, HIGH, MAP, SHADES = 640, 66, 26, 16, 560, 20
WIDTH, ROOT, PER_ROW = 16, 4, 16             # features of a head, its root, sectors in a row of the last step


class FollowNumber(Explorable):
    """The `launch()` of a subclass runs a kernel on its tensors.

    q, k: (heads, rows) of them, drawn with `seed`; the map has a row for each query. `row_name`, `key_name`:
    what is in it; `at`: the (row, key) where it starts. `roles`: what each store of a number does, one for each
    that the kernel makes of it; `kept`: what the last stores, `after` what becomes of that, "" for a weight.
    """
    row_name, key_name = "query", "key"
    kept = "e^(score − largest score of the row)"
    after = "At the end the output is divided by the sum of the row"
    page = {"step": STEPS}

    def __init_subclass__(cls):
        cls.rows, cls.keys = cls.q[0] * cls.q[1], cls.k[1]
        cell, (row, key), last = MAP / cls.keys, cls.at, cls.rows - 1
        box = (LEFT + cell / 2, TOP + HIGH / 2, MAP - cell, HIGH * last)
        cls.controls = (Choice("step", STEPS),
                        Point("at", (0, cls.keys - 1, 1), (0, last, 1), box, (key, last - row)))

    @property
    def tensors(self) -> list[torch.Tensor]:
        """q, k and v."""
        draw = torch.Generator().manual_seed(self.seed)
        return [torch.randn(1, *shape, WIDTH, generator=draw) for shape in (self.q, self.k, self.k)]

    def made_of(self, row: int, key: int) -> tuple[int, int]:
        """(row of q, row of k) in memory, of a place of the map."""
        return row, row * self.k[0] // self.rows * self.keys + key

    def found(self, canvas: Canvas, y: float, row: int, key: int) -> str:
        """Sentences on how the kernel found the key, and a line at y that shows it."""
        return ""

    @classmethod
    @cache
    def numbers(cls) -> list[list[Number]]:
        """Of each place of the map, from one recorded run of the kernel."""
        self = cls()
        with cuda.profile() as report:
            self.launch()
        made = Followed(report.launches, WIDTH, len(self.roles)).numbers
        numbers = [[made[self.made_of(row, key)] for key in range(self.keys)] for row in range(self.rows)]
        for row in numbers:
            _weigh([number for number in row if number.stored > 0])
        return numbers

    def draw(self, step, at):
        key, row = int(at[0]), self.rows - 1 - int(at[1])
        canvas, number = Canvas(WIDE, TOP + HIGH * self.rows + 180), self.numbers()[row][key]
        self.draw_map(canvas, row, key, step, number)
        n = STEPS.index(step)
        show = (self.weight, self.query_and_key, self.owner, self.lines, self.sectors)[n]
        said = show(canvas, TOP + HIGH * self.rows + 30, row, key, number)
        return canvas, (f"{self.row_name} {row}, {self.key_name} {key}: weight {number.weight:.4f}. "
                        f"Step {n + 1}, {step}. {said}")

    def draw_map(self, canvas, row, key, step, number):
        """Weights by how large they are, and what the step speaks of."""
        cell, x, y = MAP / self.keys, LEFT + MAP / self.keys * key, TOP + HIGH * row
        places = [((LEFT + cell * k, TOP + HIGH * r), n) for r, line in enumerate(self.numbers())
                  for k, n in enumerate(line)]
        most = max(n.weight for _, n in places)
        canvas.text(LEFT, TOP - 8, f"{self.key_name} {key}", bold=True)
        canvas.text(LEFT + MAP, TOP - 8, f"weights, at most {most:.2f}", anchor="end", fill="faint")
        canvas.text(LEFT - 6, y + 12, f"{self.row_name} {row}", anchor="end", bold=True)
        for shade in range(1, SHADES + 1):
            alike = [place for place, n in places if ceil(SHADES * n.weight / most) == shade]
            canvas.frames(alike, cell, HIGH, fill="0", stroke=None, shade=shade / SHADES)
        canvas.frames([place for place, _ in places], cell, HIGH, stroke="soft")
        if step == "query and key":
            canvas.rect(LEFT, y, MAP, HIGH, fill=None, stroke="ink")
            canvas.rect(x, TOP, cell, HIGH * self.rows, fill=None, stroke="ink")
        if step == "tile, warp, lane":
            tile = [(place, n.made["warp"]) for place, n in places if n.tile == number.tile]
            warp = [place for place, warp in tile if warp == number.made["warp"]]
            canvas.frames([place for place, _ in tile], cell, HIGH, stroke="faint")
            canvas.frames(warp, cell, HIGH, stroke="warn", thick=1.5)
        canvas.rect(LEFT, TOP, MAP, HIGH * self.rows, shade=0, place="at")
        canvas.rect(x, y, cell, HIGH, fill="accent", stroke="ink", thick=2, drag="at",
                    about=f"{self.row_name} {row}, {self.key_name} {key}")

    # The steps: each draws, and returns its sentences.
    def weight(self, canvas, y, row, key, number):
        weight, kept = number.weight, number.stored
        canvas.text(14, y + 40, f"{weight:.4f}", size=34, bold=True)
        canvas.text(160, y + 36, f"is the weight of {self.key_name} {key} for {self.row_name} {row}.", size=14)
        if not weight:
            return (f"{self.row_name.capitalize()} {row} does not see {self.key_name} {key}: the weight is 0. "
                    "Its score was computed all the same, and then thrown away.")
        if not self.after:
            return "The kernels store the weight itself, in global memory."
        canvas.text(14, y + 72, f"stored: {kept:.4f} = {self.kept}; then × {weight / kept:.4f}")
        return (f"The kernel does not store it. It stored {kept:.4f}, which is {self.kept}. {self.after}: "
                f"{kept:.4f} × {weight / kept:.4f} = {weight:.4f}.")

    def query_and_key(self, canvas, y, row, key, number):
        parts = [[load["value"] for load in number.row(name)] for name in "qk"]
        parts.append([a * b for a, b in zip(*parts)])
        for n, name in enumerate(("q", "k", "q · k")):
            canvas.text(14, y + 17 + 26 * n, name, bold=True)
        canvas.grid(52, y, [[{"text": f"{value:z.2f}", "fill": fill} for value in values]
                            for values, fill in zip(parts, ("soft", "soft", "accent"))], 36, height=26)
        return (f"The products of the {WIDTH} features of {self.row_name} {row} and {self.key_name} {key} sum "
                f"to {number.dot:z.4f}. Divided by √{WIDTH}: score {number.dot / ROOT:z.4f}.")

    def owner(self, canvas, y, row, key, number):
        made, launch = number.made, number.launch
        block, thread = position(made["block"], launch.grid), position(made["thread"], launch.block)
        threads = launch.block[0] * launch.block[1]
        tile = [n.made for line in self.numbers() for n in line if n.tile == number.tile]
        canvas.text(14, y + 8, f"warp {made['warp']} of {threads // 32}, its 32 lanes:")
        lanes = [{"text": n, "fill": "accent" if n == made["lane"] else "soft"} for n in range(32)]
        canvas.grid(14, y + 18, [lanes], 19, height=24, size=10)
        others = sum(n["thread"] == made["thread"] for n in tile) - 1
        return (f"{launch.kernel} ran in a grid of {launch.grid} blocks of {threads} threads. Block {block} "
                f"made a tile of {amount(len(tile), 'scores')} of this map with no barrier between them (grey "
                f"frames). Warp {made['warp']} made {sum(n['warp'] == made['warp'] for n in tile)} of them (red "
                f"frames); this one is the work of lane {made['lane']}, thread {thread} of the block."
                + (f" The same lane made {amount(others, 'other scores')} of the tile." if others else ""))

    def lines(self, canvas, y, row, key, number):
        listed = [(number.line, "the lane sums up the products here")]
        listed += [(store["line"], role) for store, role in zip(number.stores, self.roles)]
        if number.reads:
            (line, lanes), = number.reads.most_common(1)
            listed.append((line, f"{amount(lanes, 'lanes')} multiply it by a value of the {self.key_name}"))
        else:
            listed.append((number.stores[-1]["line"], "no lane reads it any more: the key is hidden"))
        canvas.text(WIDE - 12, y, number.launch.file, anchor="end", fill="faint", code=True)
        for n, (line, role) in enumerate(listed):
            canvas.text(14, y + 37 * n, role, fill="faint")
            canvas.rect(10, y + 5 + 37 * n, WIDE - 20, 19, fill="soft", stroke=None)
            code = f"{line}  {number.launch.text[line - 1].strip()}"
            canvas.text(14, y + 18 + 37 * n, code, size=min(11, 1000 / len(code)), code=True)
        return f"In {number.launch.file}: " + "; ".join(f"line {line}, {role}" for line, role in listed) + "."

    def sectors(self, canvas, y, row, key, number):
        said = [self.found(canvas, y + 114, row, key)]
        for n, array in enumerate("qk"):
            loads = number.row(array)
            own, asked = {load["sector"] for load in loads}, set().union(*(load["asked"] for load in loads))
            first = min(own) // PER_ROW * PER_ROW
            fills = {sector: "accent" if sector in own else "4" if sector in asked else "empty"
                     for sector in range(first, first + PER_ROW)}
            canvas.text(14, y + 54 * n, f"{array}, from sector {first}; {len(asked)} were asked for", bold=True)
            canvas.grid(14, y + 6 + 54 * n, [[{"text": s, "fill": f} for s, f in fills.items()]], 38, height=22)
            requests = {load["step"]: load for load in loads}.values()
            each, warps = (sorted({load[name] for load in requests}) for name in ("sectors", "warp"))
            said.append(f"Row {self.made_of(row, key)[n]} of {array} is in sectors {min(own)} and {max(own)} "
                        f"(orange). Line {loads[0]['line']} asked for them in "
                        f"{amount(len(requests), 'requests')} of warp {', '.join(map(str, warps))}, each for "
                        + " or ".join(amount(count, "sectors") for count in each) + f", {len(asked)} in all"
                        + (" (blue: those of other lanes)." if asked > own else "."))
        return " ".join(said)


def _weigh(seen: list[Number]) -> None:
    """A weight is what was stored, as under the largest score of the whole row, and divided by the sum."""
    for number in seen:
        so_far = max(n.dot for n in seen if n.made["interval"] <= number.made["interval"])
        number.weight = number.stored * exp((so_far - max(n.dot for n in seen)) / ROOT)
    total = sum(number.weight for number in seen)
    for number in seen:
        number.weight /= total
