"""The figure of chapter 10: the stream through the model. Its text alternative is made from what it draws."""
from course_lib import figures
from course_lib.figures import COLOURS, INK
from course_lib.language_model.config import Config

ACCENT, GREY = COLOURS[5], "#999999"


def model(text="To be", config=Config(65)):
    """The residual stream as a band of tokens: what attention and the feed-forward of a layer add to one."""
    d, last = config.d_model, len(text) - 1
    fig, ax = figures.new(8.6, 3.0)
    for n, letter in enumerate(text):
        line, ink, wide = (ACCENT, ACCENT, 5) if n == last else ("#cccccc", INK, 2.5)
        ax.plot([0.2, 9.6], [n, n], color=line, lw=wide, solid_capstyle="butt", zorder=0)
        ax.text(-1.6, n, letter.replace(" ", "_"), ha="center", va="center", fontsize=10, color=ink)
    blocks = (("embedding", f"{config.vocab_size} × {d}", -1.2, -0.5, 1.4, last + 1),
              ("attention", f"{config.n_heads} heads of {config.head_dim}", 1.7, -2.6, 1.9, 1.1),
              ("feed-forward", f"{d} → {config.d_hidden} → {d}", 5.9, last + 1.4, 1.9, 1.1),
              ("norm, logits", f"{d} → {config.vocab_size}", 9.6, -0.5, 1.5, last + 1))
    for name, shape, x, y, width, height in blocks:
        figures.box(ax, x, y, width, height, "#f2f2f2", f"{name}\n{shape}", size=8.5)
    for n in range(last + 1):                       # attention reads every token so far, the feed-forward one
        figures.arrow(ax, (1.8 + 0.3 * n, n), (1.8 + 0.3 * n, -1.45), ACCENT if n == last else GREY)
    figures.arrow(ax, (6.2, last), (6.2, last + 1.35), ACCENT)
    for x, start, text_y in ((3.9, -1.5, -2.05), (8.1, last + 1.9, last + 1.95)):
        ax.annotate("+", (x, last), (x, start), color=ACCENT, fontsize=12, ha="center", va="center",
                    arrowprops={"arrowstyle": "->", "color": ACCENT, "shrinkB": 3})
        ax.text(x + 0.2, text_y, "adds to its own token", fontsize=8, va="center", color=ACCENT)
    ax.text(5.2, -3.1, f"one of {config.n_layers} layers, each token a vector of {d} numbers all the way",
            ha="center", fontsize=9, color=INK)
    figures.plain(ax, xlim=(-1.9, 11.2), ylim=(last + 2.6, -3.5))
    parts = "; ".join(f"{name}, {shape}" for name, shape, *_ in blocks)
    figures.show(fig, alt=f"The tokens of {text!r} as lines from left to right, each a vector of {d} "
                          "numbers; the last is "
                 f"in colour. {parts}. Attention reads every token so far, the feed-forward its own, and "
                 f"both add to its line; {config.n_layers} layers.",
                 caption="A stream of vectors runs through the model. Attention brings in what other tokens "
                         "hold, the feed-forward works on one token; both only add.")
