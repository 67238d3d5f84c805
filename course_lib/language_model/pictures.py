"""The figure of chapter 10: the model as boxes. Its text alternative is made from what it draws."""
from course_lib import figures


def model():
    """From tokens to logits, one layer drawn."""
    attention, feed_forward = "norm,\nattention", "norm,\nfeed-forward"
    x, x_a, x_a_f, logits = "stream x", "stream x + a", "stream x + a + f", "logits: times\nthe embedding"
    places = {"tokens": (0, 1), "embedding": (1, 1), x: (2, 1), attention: (2, 0), x_a: (3, 1),
              feed_forward: (3, 0), x_a_f: (4, 1), "norm": (5, 1), logits: (6, 1)}
    arrows = [("tokens", "embedding"), ("embedding", x), (x, attention), (attention, x_a, "adds a"), (x, x_a),
              (x_a, feed_forward), (feed_forward, x_a_f, "adds f"), (x_a, x_a_f), (x_a_f, "norm"), ("norm", logits)]
    figures.boxes(places, arrows, width=9.6, height=2.6,
                  caption="The model: four layers like the two middle columns, one stream through all of "
                          "them.")
