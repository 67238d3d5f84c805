"""What chapter 1 draws: one head as matrices, a weighted mean as a point, the width divided into heads."""
import torch

from course_lib import figures

QUERY, KEY, VALUE, PLAIN = "#d6e6f4", "#fbe6c4", "#cfeade", "#f4f4f4"
ACCENT = figures.COLOURS[5]


def one_head(x, w_q, w_k, w_v, words):
    """Attention of one head without its scale, every number shown: x (n, d_model), each w (d_model, d)."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.T
    weights = torch.softmax(scores, -1)
    out = weights @ v
    n, (width, d) = len(x), w_q.shape
    fig, ax = _canvas(2 * width + 3 * d + 2 * n + 7.2, 3 * width + 3.4)
    columns = [0, width + 1.9, width + d + 3.8, width + 2 * d + 5.6, width + 2 * d + n + 7.4,
               width + 2 * d + 2 * n + 8.6]
    rows = [0.8 + i * (width + 1.2) for i in range(3)]
    middle = rows[1] + (width - n) / 2
    _matrix(ax, columns[0], middle, x, f"X: {n} × {width}", PLAIN, rows=words)
    named = [("Q", w_q, q, QUERY), ("K", w_k, k, KEY), ("V", w_v, v, VALUE)]
    for (name, w, product, colour), y in zip(named, rows):
        _matrix(ax, columns[1], y, w, f"W$_{name}$: {width} × {d}", PLAIN)
        _matrix(ax, columns[2], y + (width - n) / 2, product, f"{name} = X W$_{name}$", colour)
        _arrow(ax, (columns[0] + width, middle + n / 2), (columns[1] - 0.15, y + width / 2))
        _arrow(ax, (columns[1] + d, y + width / 2), (columns[2] - 0.15, y + width / 2))
    high = rows[0] + (width - n) / 2 + 2.4
    _matrix(ax, columns[3], high, scores, f"scores Q Kᵀ: {n} × {n}", PLAIN, below=words)
    _matrix(ax, columns[4], high, weights, "softmax, by rows", "#f6dcc8", below=words)
    _matrix(ax, columns[5], middle + 3.4, out, f"weights · V: {n} × {d}", "#f6dcc8")
    for start, y in ((0, -0.4), (1, 0.4)):
        _arrow(ax, (columns[2] + d, rows[start] + width / 2), (columns[3] - 0.15, high + n / 2 + y))
    _arrow(ax, (columns[3] + n, high + n / 2), (columns[4] - 0.15, high + n / 2))
    _arrow(ax, (columns[4] + n, high + n / 2 + 0.5), (columns[5] + 0.3, middle + 2.4))
    _arrow(ax, (columns[2] + d, rows[2] + width / 2), (columns[5] - 0.15, middle + 3.4 + n / 2))
    seen = [", ".join(f"{other} {p:.2f}" for other, p in zip(words, row)) for row in weights.tolist()]
    told = "; ".join(f"{word} looks at {look} and gets {_pair(o)}" for word, look, o in zip(words, seen, out))
    figures.show(fig, alt=f"X, {n} by {width}, times three matrices, {width} by {d}, gives Q, K and V, "
                 f"{n} by {d}. Q times K transposed gives scores, {n} by {n}; softmax makes each row "
                 f"weights; weights times V gives the output, {n} by {d}. {told}.",
                 caption=f"One head, every number of it: {n} tokens of width {width}, queries, keys and "
                         f"values of width {d}.")


def weighted_mean(values, weights, words):
    """Values (n, 2) as points, and the answer of attention among them."""
    answer = weights @ values
    middle = values[:, 1].mean()
    fig, ax = figures.new(4.6, 3.4)
    for word, (x, y), weight in zip(words, values.tolist(), weights.tolist()):
        ax.plot([x, answer[0]], [y, answer[1]], color="#bbbbbb", linewidth=0.6 + 6 * weight, zorder=1)
        ax.plot(x, y, "o", color=figures.COLOURS[0], markersize=8, zorder=2)
        ax.annotate(f"{word}: {weight:.2f}", (x, y), (6, 8 if y > middle else -16),
                    textcoords="offset points", fontsize=9, color=figures.INK)
    ax.plot(*answer.tolist(), "D", color=ACCENT, markersize=9, zorder=3)
    ax.annotate(f"answer {_pair(answer)}", answer.tolist(), (8, 8), textcoords="offset points", fontsize=9,
                color=ACCENT)
    ax.margins(0.22)
    points = "; ".join(f"{word} at {_pair(value)} with weight {weight:.2f}"
                       for word, value, weight in zip(words, values, weights.tolist()))
    figures.show(fig, alt=f"Points in the plane: {points}. The answer is at {_pair(answer)}, inside the "
                 "figure they span.",
                 caption="A weighted mean is a point between the values: the heavier a value, the nearer.")


def width_in_heads(tokens, n_heads, head_dim):
    """(n, h·d) divided into h matrices (n, d), which attend apart, and are put side by side again."""
    width = n_heads * head_dim
    fig, ax = _canvas(2 * width + 2 * head_dim + 9.9, n_heads * (tokens + 1.3) + 0.9)
    colours = [QUERY, KEY, VALUE, "#eedbe8"]
    middle = 0.8 + (n_heads * (tokens + 1.3) - tokens) / 2
    places = [0, width + 2.2, width + head_dim + 5.2, width + 2 * head_dim + 7.6]
    labels = torch.arange(width).repeat(tokens, 1)
    for head in range(n_heads):
        own = slice(head * head_dim, (head + 1) * head_dim)
        y, colour = 1 + head * (tokens + 1.3), colours[head % len(colours)]
        for x in (places[0], places[3]):
            title = ("q, k or v" if x == places[0] else "side by side") if head == n_heads // 2 else ""
            _matrix(ax, x + head * head_dim, middle, labels[:, own] if x == places[0] else None, title,
                    colour, size=(tokens, head_dim), digits=0)
        _matrix(ax, places[1], y, labels[:, own], f"head {head}", colour, digits=0)
        _matrix(ax, places[2], y, None, "its output", colour, size=(tokens, head_dim))
        _arrow(ax, (places[0] + width, middle + tokens / 2), (places[1] - 0.15, y + tokens / 2))
        _arrow(ax, (places[1] + head_dim, y + tokens / 2), (places[2] - 0.15, y + tokens / 2), "attend")
        _arrow(ax, (places[2] + head_dim, y + tokens / 2), (places[3] - 0.15, middle + tokens / 2))
    slices = ", ".join(f"head {i} features {i * head_dim} to {(i + 1) * head_dim - 1}"
                       for i in range(n_heads))
    figures.show(fig, alt=f"A matrix of {tokens} tokens by {width} features is divided by columns: {slices}. "
                 f"Each head attends on its own {tokens} by {head_dim} matrix; the outputs are put side by "
                 f"side, {tokens} by {width}, and mixed.",
                 caption="Each head gets its slice of the features of every token; the numbers are the "
                         "features.")


def _canvas(width, height, cell=0.3):
    fig, ax = figures.new(width * cell, height * cell)
    figures.plain(ax, xlim=(-2.1, width - 2.1), ylim=(height, 0), aspect="equal")
    return fig, ax


def _matrix(ax, x, y, matrix, name, colour, rows=(), below=(), size=None, digits=2):
    n, m = size if matrix is None else matrix.shape
    for i in range(n):
        for j in range(m):
            ax.add_patch(figures.rectangle(x + j, y + i, 1, 1, facecolor=colour, edgecolor="#888888",
                                           linewidth=0.6))
            if matrix is not None:
                ax.text(x + j + 0.5, y + i + 0.5, _short(float(matrix[i, j]), digits), ha="center",
                        va="center", fontsize=8.5, color=figures.INK)
    ax.text(x + m / 2, y - 0.25, name, ha="center", va="bottom", fontsize=8.5, color=figures.INK)
    for i, word in enumerate(rows):
        ax.text(x - 0.2, y + i + 0.5, word, ha="right", va="center", fontsize=8.5, color=figures.INK)
    for j, word in enumerate(below):
        ax.text(x + j + 0.5, y + n + 0.15, word, ha="center", va="top", fontsize=8.5, color=figures.INK)


def _arrow(ax, start, end, label=""):
    figures.arrow(ax, start, end, "#777777", 0.9)
    if label:
        ax.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 0.2, label, ha="center", va="bottom",
                fontsize=7, color="#555555")


def _short(number, digits):
    return f"{number:.0f}" if number == round(number) else f"{number:.{digits}f}".lstrip("0")


def _pair(point):
    return "(" + ", ".join(_short(float(round(float(p), 2)), 2) for p in point) + ")"
