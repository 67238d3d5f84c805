"""Two Gaussians moved by hand: distance, plan and overlap (chapter 9)."""
import torch

from course_lib.explore.frame import Canvas, Explorable, Point, Slider
from course_lib.w2_attention import gaussian_overlap, w2_distance

BOX, RANGE = (20, 14, 440, 220), 4.0
HANDLES = (BOX[0] + BOX[2] / 8, BOX[1] + BOX[3] / 8, 0.75 * BOX[2], 0.75 * BOX[3])   # where means may be
WIDTHS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def place(x: float, y: float) -> tuple[float, float]:
    left, top, width, height = BOX
    return left + width * (x + RANGE) / (2 * RANGE), top + height * (RANGE / 2 - y) / RANGE


class Gaussians(Explorable):
    title = "Two Gaussians and the way from one to the other"
    caption = ("The cheapest plan moves each point of the blue Gaussian along a straight line to its place "
               "in the orange one. The squared distance is that of the means plus that of the widths, which "
               "are standard deviations; the overlap score takes their squares, the variances.")
    controls = (Point("a", (-3, 3, 0.25), (-1.5, 1.5, 0.25), HANDLES, (-2, -0.5), "blue"),
                Point("b", (-3, 3, 0.25), (-1.5, 1.5, 0.25), HANDLES, (1.5, 0.5), "orange"),
                Slider("width_a", WIDTHS, 0.5, "width of blue, along x"),
                Slider("width_b", WIDTHS, 1.0, "width of orange, along x"))
    HEIGHT = 0.5                # the width along y, of both

    def draw(self, a, b, width_a, width_b):
        pair = [torch.tensor(x, dtype=torch.float64)
                for x in (a, (width_a, self.HEIGHT), b, (width_b, self.HEIGHT))]
        far = w2_distance(*pair).item()
        alike = gaussian_overlap(pair[0], pair[1]**2, pair[2], pair[3]**2).item()   # which takes variances
        means = (pair[0] - pair[2]).square().sum().item()
        widths = (pair[1] - pair[3]).square().sum().item()
        canvas = Canvas(700, 260)
        canvas.rect(*BOX, fill=None)
        for fill, mean, wide in (("0", a, width_a), ("1", b, width_b)):
            canvas.curve(outline(mean, wide, self.HEIGHT), fill=fill, shade=0.55, stroke="ink", thick=1)
        for angle in range(0, 360, 45):
            start, end = (outline(mean, wide, self.HEIGHT)[angle // 10]
                          for mean, wide in ((a, width_a), (b, width_b)))
            canvas.arrow(*start, *end, stroke="faint", thick=0.8, head=5)
        for name, mean in (("a", a), ("b", b)):
            canvas.circle(*place(*mean), 6, fill="accent", drag=name, about=f"the mean of {name}")
        rows = (f"means: {means:.3f}", f"widths: {widths:.3f}", f"W2² = {far**2:.3f}", f"W2 = {far:.3f}",
                f"overlap score: {alike:z.3f}")
        for n, row in enumerate(rows):
            canvas.text(480, 50 + 30 * n, row, size=13, bold=n == 3)
        return canvas, (f"Blue: mean ({a[0]:g}, {a[1]:g}), width {width_a:g}. Orange: mean ({b[0]:g}, "
                        f"{b[1]:g}), width {width_b:g}. Squared distance {means:.3f} of the means plus "
                        f"{widths:.3f} of the widths is {far**2:.3f}, so W2 is {far:.3f}. The overlap score, "
                        f"which takes the squares of the widths as variances, is {alike:z.3f}.")


def outline(mean: tuple, wide: float, high: float) -> list[tuple[float, float]]:
    """The points one width away from the mean, every 10 degrees."""
    angles = torch.arange(0, 360, 10, dtype=torch.float64).deg2rad()
    return [place(mean[0] + wide * c, mean[1] + high * s)
            for c, s in zip(angles.cos().tolist(), angles.sin().tolist())]
