"""What an explorable is: a title, a caption, controls, and a function from their state to a picture."""
import itertools
from dataclasses import asdict, replace
from pathlib import Path

from course_lib.explore.frame.controls import Choice
from laptop_cuda.pictures import front
from laptop_cuda.pictures.front import Picture

FILE = Path(__file__).with_name("explore.js")
LARGEST_TABLE = 400_000        # bytes of the states that a page of the book carries


class Explorable:
    """A picture that a reader can move. A subclass says what, and draws one state:

        class Powers(Explorable):
            title = "Powers"
            caption = "Each step of n doubles the bar."
            controls = (Slider("n", range(8)), Choice("fill", ("soft", "accent")))
            page = {"n": range(8), "fill": ["accent"]}

            def draw(self, n, fill):
                value = the_course.power(n)                  # what the course computes, never a copy
                canvas = Canvas(700, 60)
                canvas.rect(10, 20, 5 * value, 20, fill=fill, text=value)
                return canvas, f"n is {n}, the bar is {value}."

    in a file `course_lib/explore/powers.py`, shown by `explore.show("powers", n=3)`. `draw` is a function of
    the state alone. `page` (optional) names the values that the book offers, where no kernel computes:
    the states of all combinations are drawn when the book is made; a control that it does not name stays
    where it starts. The words are what a reader hears who does not see the picture: every number in it."""
    title: str
    caption: str
    controls: tuple
    page: dict | None = None

    def ranges(self, **state) -> dict:
        """{control: the values that it has in this state}, for sliders that depend on other controls."""
        return {}

    def draw(self, **state):
        """(canvas, words) of one state."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name of its file."""
        return type(self).__module__.rpartition(".")[2]

    def state(self, **changes) -> dict:
        """The start state with changes, each an allowed value of its control."""
        known = {control.name: control for control in self.controls}
        if unknown := changes.keys() - known.keys():
            raise ValueError(f"{self.name}: no control {sorted(unknown)[0]!r}; it has {', '.join(known)}")
        found = {name: control.accept(changes.get(name, control.first())) for name, control in known.items()}
        return found | {name: min(values, key=lambda value: abs(value - found[name]))
                        for name, values in self.ranges(**found).items()}

    def picture(self, **changes) -> Picture:
        """One state drawn and said."""
        canvas, words = self.draw(**self.state(**changes))
        return Picture(canvas, " ".join(words.split()), self.title, self.caption)

    def answer(self, state: dict) -> dict:
        """What the browser shows for a state; a state that cannot be drawn is a sentence."""
        try:
            picture = self.picture(**state)
        except ValueError as problem:
            return {"problem": str(problem)}
        ranges = {name: list(values) for name, values in self.ranges(**self.state(**state)).items()}
        return {"svg": picture.canvas.svg(picture.words), "words": picture.words, "ranges": ranges}

    def spec(self, controls=None, **start) -> dict:
        """Title, caption, controls and start state, for the browser."""
        said = [asdict(replace(c, label=c.label or c.name.replace("_", " ")))
                for c in controls or self.controls]
        return {"name": self.name, "title": self.title, "caption": self.caption, "controls": said,
                "state": self.state(**start)}

    def show(self, **start) -> None:
        """The widget for whoever sits at the kernel, the still for every page."""
        about = {"explorable": self.name} | ({"start": start} if start else {})
        front.show(self.picture(**start), lambda: self._widget(start), about)

    def table(self) -> dict | None:
        """The spec and all states of `page`, or None where only a kernel can move it."""
        if self.page is None:
            return None
        controls = [self._offered(c) for c in self.controls if c.name in self.page]
        states = {}
        for place in itertools.product(*(range(len(c.values)) for c in controls)):
            state = {c.name: c.values[n] for c, n in zip(controls, place)}
            answer = states[",".join(map(str, place))] = self.answer(state)
            ranges = answer.get("ranges", {})       # of which the page has what it offers
            ranges |= {c.name: [v for v in c.values if v in ranges[c.name]]
                       for c in controls if c.name in ranges}
        spec = self.spec(controls)
        for c in controls:                      # the start state, where the page offers it
            if spec["state"][c.name] not in c.values:
                spec["state"][c.name] = c.values[0]
        return {"spec": spec, "states": states}

    def _offered(self, control):
        """A control with only the values that the page offers; a text becomes a choice of texts."""
        values = tuple(control.accept(value) for value in self.page[control.name])
        if control.kind == "text":
            return Choice(control.name, values, label=control.label)
        return replace(control, values=values)

    def _widget(self, start: dict):
        made = front.widget_class("ExploreWidget", FILE)(data=self.spec(**start), answer=self.answer(start))

        def answered(change):
            asked = change["new"]
            try:
                found = self.answer(asked["state"])
            except Exception as problem:        # the page waits for an answer before it asks again
                found = {"problem": f"{type(problem).__name__}: {problem}"}
            # The number makes each answer a change, also where two states look the same.
            made.answer = found | {"number": asked["number"]}

        made.observe(answered, "asked")
        return made
