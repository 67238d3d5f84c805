"""Chapter 8: slices of a sequence in processes of their own, whose keys and values go round."""
import pytest
import torch

from course_lib.gqa import grouped_query_attention
from course_lib.paged_attention.ring import in_processes


@pytest.mark.parametrize("causal, lengths", [(True, [5, 8]), (False, [9, 4])])
def test_two_processes_make_one_attention(causal, lengths):
    q, k, v = (torch.randn(2, heads, 13, d, dtype=torch.float64,
                           generator=torch.Generator().manual_seed(heads))
               for heads, d in ((4, 8), (2, 8), (2, 6)))
    torch.testing.assert_close(in_processes(q, k, v, lengths, causal),
                               grouped_query_attention(q, k, v, causal=causal))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[13], [1, 11, 1], [2, 3, 5, 3]])
def test_any_number_of_processes(causal, lengths):
    q, k, v = torch.randn(3, 1, 2, 13, 8)
    torch.testing.assert_close(in_processes(q, k, v, lengths, causal),
                               grouped_query_attention(q, k, v, causal=causal))


@pytest.mark.parametrize("lengths", [[5, 9], [13, 0], [6.5, 6.5]])
def test_the_slices_must_make_the_whole(lengths):
    q = torch.ones(1, 1, 13, 4)
    with pytest.raises(ValueError, match="^lengths must be positive and sum to the 13 tokens"):
        in_processes(q, q, q, lengths)


def test_an_error_in_a_process_is_raised_here():
    q = torch.ones(1, 1, 4, 4)
    with pytest.raises(torch.multiprocessing.ProcessRaisedException):
        in_processes(q, q, torch.ones(1, 1, 3, 4), [2, 2])
