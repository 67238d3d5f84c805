"""`python -m course_lib attention-study`: what the small language model loses without positions.

Writes data/attention_study.json. The weights of data/tiny_lm.safetensors learned with rotated queries and
keys (chapter 2); the rotation is switched off, and both models train on for the same steps and batches."""
from course_lib import language_model
from .tuning import tuning_study


def without_positions():
    """The small model with queries and keys that are not rotated: chapter 1's attention alone."""
    model, _ = language_model.pretrained()
    for block in model.blocks:
        block.rope = False
    return model


MECHANISMS = {"with positions": lambda: language_model.pretrained()[0],
              "without positions": without_positions}


def study_command(argv):
    """python -m course_lib attention-study: the small model without positions, before and after tuning."""
    return tuning_study(argv, "attention-study", study_command.__doc__,
                        {name: lambda seed, make=make: make() for name, make in MECHANISMS.items()})
