"""Pictures whose states are too many for a table: the page computes and draws them (course_lib/explore/page)."""
import base64
import json
from functools import cache
from pathlib import Path

from course_lib import explore
from course_lib.explore.looking import small_model
from course_lib.explore.small_model import draws

PAGE = Path(explore.__file__).parent / "page"
MODEL = ("looking", "small_model")      # these load the weights, when they are first used


def names() -> list[str]:
    return sorted({p.stem for p in PAGE.glob("*.js")} - {"canvas", "float16", "model"})


def module(name: str) -> str:
    """What one picture needs: `draw(state, data)`, `answerOf`, and `Model` where it is of the model."""
    parts = ("canvas", *(["float16", "model"] if name in MODEL else []), name)
    return "\n".join((PAGE / f"{part}.js").read_text(encoding="utf-8") for part in parts)


def script(name: str) -> str:
    """A plain script that adds one picture to those of the page, its controls as Python has them."""
    spec = json.dumps(explore.find(name).spec(), ensure_ascii=False)
    needs = f', open: weights => new Model(weights), size: "{len(weights()) / 1e6:.1f} MB"' if name in MODEL else ""
    return (f"(() => {{\n{module(name)}\n(window.courseExplorables ??= {{}})[{json.dumps(name)}] = "
            f"{{spec: {spec}, answer: (state, data) => answerOf(draw, state, data){needs}}};\n}})();\n")


@cache
def weights() -> str:
    """The small model as a script, float16 in base64 as in data/: a page from the disk fetches no other file."""
    model, tokenizer = small_model()
    state = model.state_dict()
    values = b"".join(x.half().numpy().tobytes() for x in state.values())
    about = {"config": vars(model.config), "vocabulary": tokenizer.vocabulary, "draws": draws(),
             "shapes": [[name, list(x.shape)] for name, x in state.items()],
             "values": base64.b64encode(values).decode()}
    return f"window.courseWeights = {json.dumps(about)};\n"
