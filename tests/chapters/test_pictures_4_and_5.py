"""The pictures of chapters 4 and 5 say in words what was drawn."""
import torch

from course_lib.linear_attention import pictures as linear
from course_lib.sparse_attention import pictures as sparse, sliding_window_mask


def words(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_a_state_is_told_after_every_token(capsys):
    linear.state_fills(torch.tensor([[1.0, 0], [2, 1]]), torch.tensor([[3.0, 0], [0, -1]]))
    told = words(capsys)
    assert "after token 1: (3, 0), (0, 0)" in told and "after token 2: (3, -2), (0, -1)" in told


def test_both_orders_name_the_matrix_between(capsys):
    linear.two_orders(n=5, m=3)
    told = words(capsys)
    assert "makes a matrix of 25 numbers first" in told and "makes a matrix of 9 numbers first" in told


def test_the_bars_that_contain_the_truth_are_counted(capsys):
    linear.estimates([1, 2], [1.0, 1.3], [0.1, 0.1], draws=1000)
    assert "2: 1.300 ± 0.200" in (told := words(capsys)) and "1 of 2 bars contain it" in told


def test_masks_are_told_by_share_and_last_row(capsys):
    sparse.masks({"window": sliding_window_mask(8, 3), "all": torch.ones(8, 8, dtype=torch.bool)})
    told = words(capsys)
    assert "window: causal, 58%; its last query sees keys 5 to 7" in told and "all: both ways, 100%" in told


def test_reach_goes_back_layer_by_layer(capsys):
    sparse.reach(sliding_window_mask(9, 3), layers=2)
    told = words(capsys)
    assert "after layer 2: tokens 8; after layer 1: tokens 6 to 8; input: tokens 4 to 8" in told
    assert "5 tokens after 2 layers" in told


def test_packed_documents_leave_empty_blocks(capsys):
    sparse.packed([4, 4], block=4)
    assert "2 empty, 2 partial, 0 full" in words(capsys)


def test_the_best_keys_hold_their_share(capsys):
    sparse.best_keys(torch.tensor([0.5, 0.1, 0.1, 0.3]), 2)
    assert "The 2 largest hold 80% of the weight; 1 of them are among the nearest 2 keys" in words(capsys)


def test_recall_is_the_mean_over_the_seeds(capsys):
    rows = [{"recall": {"window": {"4": share, "8": 0.9}}} for share in (0.4, 0.6)]
    sparse.recall({"rows": rows})
    assert "window: 50% with 4, 90% with 8" in words(capsys)
