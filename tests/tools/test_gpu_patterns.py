"""What cards count for single accesses, beside the engine's counts: data/gpu/<card>/patterns.json."""
import json
from collections import Counter

import pytest

from course_lib.gpu import patterns
from course_lib.gpu.results import FOLDER

FILES = sorted(FOLDER.glob("*/patterns.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_engine_counts_as_the_card_does(file):
    launches = json.loads(file.read_text())["launches"]
    assert len(launches) == 390
    for kernel, at, *card in launches:
        engine, places = patterns.counted(kernel, at), [place for place in at if place >= 0]
        if kernel == "copy_async<16>":          # the card's counters leave it out
            assert card == [0, 0] and engine[1] == 0
        elif engine:
            assert (kernel, at, *card) == (kernel, at, *engine)
        else:       # the lanes of a bank one by one, those of one address too; twice where it is a loop
            assert card[0] == max(Counter(p % 32 for p in places).values()) * (2 if "float" in kernel else 1)


def test_the_file_is_what_the_card_s_answers_make():
    text = FILES[0].read_text()
    made = json.loads(text)
    read = [(kernel.partition("<")[0], dict(zip(made["counters"][kernel.partition("<")[0]], counts)))
            for kernel, _, *counts in made["launches"]]
    assert patterns.written(made["card"], made["date"], read) == text
    with pytest.raises(ValueError, match="390 launches; its table has 389"):
        patterns.written(made["card"], made["date"], read[:-1])
