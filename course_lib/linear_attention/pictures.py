"""The figures of chapter 4. Each function draws and shows one, its text alternative made from the data."""
import torch

from course_lib import figures
from course_lib.figures import COLOURS, INK

ACCENT, GREY, LIGHT, WARM = COLOURS[5], "#999999", "#d6e6f4", "#f6dcc8"


def two_orders(n=8, m=2):
    """The same three matrices multiplied from the left and from the right, to scale."""
    orders = {"(Φ_Q Φ_Kᵀ) V": [("Φ_Q", n, m), ("×", "Φ_Kᵀ", m, n), ("=", "Φ_Q Φ_Kᵀ", n, n), ("×", "V", n, m)],
              "Φ_Q (Φ_Kᵀ V)": [("Φ_Kᵀ", m, n), ("×", "V", n, m), ("=", "S", m, m), ("read by", "Φ_Q", n, m)]}
    fig, axes = figures.new(8.2, 2.3, columns=2)
    told = []
    for ax, (name, parts) in zip(axes, orders.items()):
        x, between = 0.0, 0
        for *sign, label, rows, columns in parts:
            if sign:
                width = 1.4 if len(sign[0]) == 1 else 4.6
                ax.text(x + width / 2, n / 2, sign[0], ha="center", va="center", fontsize=9, color=INK)
                x += width
            made, label = sign == ["="], _maths(label)
            between = rows * columns if made else between
            figures.box(ax, x, (n - rows) / 2, columns, rows, WARM if made else LIGHT, label if made else "",
                        edge=ACCENT if made else GREY, line=1.4, size=11)
            ax.text(x + columns / 2, (n - rows) / 2 - 0.25, "" if made else label, ha="center", va="bottom",
                    fontsize=11, color=INK)
            x += columns
        ax.set(xlim=(-0.3, 3.2 * n), ylim=(n + 0.4, -1.2), aspect="equal")
        ax.set_title(f"{_maths(name)}: {between} numbers in between", fontsize=9.5)
        ax.axis("off")
        told.append(f"{name} makes a matrix of {between} numbers first")
    figures.show(fig, alt=f"Rectangles to scale for {n} tokens and {m} features. {'; '.join(told)}.",
                 caption=f"{n} tokens, {m} features: the order decides whether the matrix in between "
                         "grows with the text.")


def _maths(name):
    return name.replace("Φ_Q", r"$\Phi_Q$").replace("Φ_Kᵀ", r"$\Phi_K^\top$")


def state_fills(keys, values):
    """What each token adds to the state, an outer product, and the state after it."""
    added = keys[:, :, None] * values[:, None, :]
    states = torch.cat([torch.zeros_like(added[:1]), added.cumsum(0)])
    tokens, (rows, columns) = len(added), added.shape[1:]
    largest = max(float(states.abs().max()), float(added.abs().max()))
    fig, ax = figures.new(1.25 * (tokens + 1) + 1.5, 3.0)
    step, down = columns + 1.6, rows + 1.7
    for t in range(tokens + 1):
        _matrix(ax, t * step, down, states[t], largest)
        ax.text(t * step + columns / 2, 2 * rows + 2.1, "empty" if t == 0 else f"after token {t}",
                ha="center", va="top", fontsize=8.5, color=INK)
        if t:
            _matrix(ax, t * step, 0, added[t - 1], largest)
            middle, level = t * step + columns / 2, down + rows / 2
            ax.text(middle, -0.2, f"token {t} adds", ha="center", va="bottom", fontsize=8.5, color=INK)
            for start, end in (((middle, rows + 0.15), (middle, down - 0.1)),
                               ((t * step - 1.45, level), (t * step - 0.15, level))):
                ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY})
    ax.text(-0.4, down + rows / 2, "state", ha="right", va="center", fontsize=9, color=INK)
    figures.plain(ax, xlim=(-3.2, (tokens + 1) * step), ylim=(2 * rows + 3.0, -1.2), aspect="equal")
    told = "; ".join(f"after token {t}: {_rows(states[t])}" for t in range(1, tokens + 1))
    figures.show(fig, alt=f"A state of {rows} by {columns} numbers, all 0 at first. Each token adds a key "
                 f"times a value. {told}.", caption=f"The state has {rows} x {columns} numbers after one "
                 f"token and after {tokens}: tokens are added, never kept.")


def replace_at_a_key(stored=((0.0, 1, 0), (3.0, -1, 2)), key=(0.8, 0.6, 0), value=(0.0, 2, -2)):
    """A state, what it returns for a key, and the state after the delta rule has written a value there."""
    (first, old), k, v = map(torch.tensor, stored), torch.tensor(key), torch.tensor(value)
    state = torch.outer(first, old)
    missing = v - k @ state
    after = state + torch.outer(k, missing)
    returned = ("S returns for k", (k @ state)[None])
    lines = [[("", "key k", k[:, None]), ("", "state S", state), ("→", *returned)],
             [("", "value v", v[None]), ("−", *returned), ("=", "missing", missing[None])],
             [("", "S + k · missing", after), ("→", "returns for k", (k @ after).round(decimals=6)[None])]]
    parts = {name: part for line in lines for _, name, part in line}
    largest = max(float(part.abs().max()) for part in parts.values())
    fig, ax = figures.new(4.6, 4.0)
    for line, middle in zip(lines, (1.5, 5.0, 8.5)):
        left = 0
        for sign, name, part in line:
            top, width = middle - len(part) / 2, part.shape[1]
            _matrix(ax, left, top, part, largest, numbers=True)
            ax.text(left + width / 2, top - 0.1, name, ha="center", va="bottom", fontsize=9, color=INK)
            ax.text(left - 0.7, middle, sign, ha="center", va="center", fontsize=11, color=INK)
            left += width + 1.4
    figures.plain(ax, xlim=(-0.3, 12.1), ylim=(10.1, -0.8), aspect="equal")
    told = "; ".join(f"{name}: {_rows(part.T if name == 'key k' else part)}" for name, part in parts.items())
    figures.show(fig, alt=f"Numbers as cells. {told}.",
                 caption="The delta rule adds only what is missing: for this key the state then returns "
                         "exactly the value. Plain linear attention would have added all of v.")


def estimates(sizes, ratios, errors, draws):
    """Estimates of exp(q.k) over the truth, with bars of two standard errors, by |q + k|^2."""
    fig, ax = figures.new(6.4, 2.8)
    ax.errorbar(sizes, ratios, yerr=[2 * e for e in errors], fmt="o", capsize=4, color=COLOURS[0])
    ax.axhline(1, linestyle="--", linewidth=1, color=INK)
    ax.set_xlabel("length of q + k, squared", color=INK)
    ax.set_ylabel("estimate / exp(q.k)", color=INK)
    told = "; ".join(f"{size:g}: {r:.3f} ± {2 * e:.3f}" for size, r, e in zip(sizes, ratios, errors))
    inside = sum(abs(r - 1) < 2 * e for r, e in zip(ratios, errors))
    figures.show(fig, alt=f"Estimates over the truth, by the length of q + k, squared: {told}. A line at 1; "
                          f"{inside} of {len(sizes)} bars contain it.",
                 caption=f"{draws:,} directions. The bars are two standard errors, by the theorem.")


def _matrix(ax, x, y, matrix, largest, numbers=False):
    """Cells whose fill says how large a number is: white is 0, blue above, orange below."""
    from matplotlib.colors import to_rgb

    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            full = torch.tensor(to_rgb(COLOURS[0] if value > 0 else COLOURS[5]))
            share = 0.85 * abs(value) / largest
            colour = tuple((1 - share * (1 - full)).tolist())
            ax.add_patch(figures.rectangle(x + j, y + i, 1, 1, facecolor=colour, edgecolor=GREY,
                                           linewidth=0.6))
            if numbers:
                ax.text(x + j + 0.5, y + i + 0.5, f"{value:z.2g}", ha="center", va="center", fontsize=8)


def _rows(matrix):
    return ", ".join("(" + ", ".join(f"{x:z.3g}" for x in row) + ")" for row in matrix.tolist())
