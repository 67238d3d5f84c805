"""Whole models against the library (pip install "course_lib[field_guide]"): built here, nothing downloaded."""
import pytest

pytest.importorskip("transformers", reason='needs transformers: pip install "course_lib[field_guide]"')
pytestmark = pytest.mark.slow

from course_lib.field_guide.whole.tiny import tiny                                             # noqa: E402
from course_lib.studies.whole_models import CHUNKED, compare                                   # noqa: E402


@pytest.mark.parametrize("model_type", tiny())
def test_equal_to_the_published_model(model_type, tmp_path):
    """Logits whole, padded, in chunks and from shards; 64 greedy tokens."""
    row = compare(model_type, tmp_path)
    most = 2e-5 if model_type in CHUNKED else 1e-5
    assert {way: row[way] for way in ("logits", "padded", "in chunks", "sharded") if not row[way] < most} == {}
    assert row["tokens"]


def test_the_recording_is_of_what_the_library_writes(tmp_path):
    row, kept = compare("qwen3", tmp_path), tiny("qwen3")
    assert row["kept"]["shapes"] == kept.shapes and row["kept"]["config"] == kept.config
    assert (row["kept"]["tokens"] == kept.tokens).all()
