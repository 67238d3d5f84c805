"""Ring attention: a sequence too long for one machine, cut into one slice per process.

Each process keeps its queries and passes keys and values on to the next: after as many steps as there are
processes, every query has met every key, one slice at a time, and chapter 6's `merge` has joined the parts.
"""
import os
import socket
import tempfile
from datetime import timedelta
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing as processes

from course_lib.checks.paged_attention import check_gathered, check_slices
from course_lib.flash_attention import finish, grouped, merge, state_of


def ring_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """This process's slice of attention over the whole sequence: q (b, n_heads, n, d), k and v
    (b, n_kv_heads, n, ...) -> (b, n_heads, n, v_dim).

    Call it in every process of the group, with slices in the order of the ranks; they may differ in
    length."""
    rank, n_ranks, n = dist.get_rank(), dist.get_world_size(), k.shape[2]
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(n_ranks)]
    dist.all_gather(lengths, torch.tensor([n]))
    lengths = [int(length) for length in lengths]
    check_gathered(lengths)         # every process sees all lengths, so all stop together
    starts, state = list(accumulate(lengths, initial=0)), None
    for step in range(n_ranks):
        owner = (rank - step) % n_ranks             # the rank that these keys and values belong to
        passing = pass_on(k, v, lengths[owner - 1]) if step < n_ranks - 1 else None
        queries, keys, values, _ = grouped(q, k, v, None)
        scores = queries @ keys.mT * q.shape[-1]**-0.5
        if causal:
            first = starts[rank] - starts[owner]            # the first query, counted from the first key
            scores = scores.masked_fill(torch.ones(n, k.shape[2]).triu(first + 1).bool(), -torch.inf)
        here = state_of(scores, values)
        state = here if state is None else merge(state, here)
        if passing:
            k, v = passing()
    return finish(state)[0].flatten(1, 2).to(q.dtype)


def pass_on(k: Tensor, v: Tensor, n_next: int):
    """Start sending k and v to the next process and receiving n_next tokens; returns who waits for them."""
    rank, n_ranks, tensors = dist.get_rank(), dist.get_world_size(), [k.contiguous(), v.contiguous()]
    arriving = [x.new_empty(*x.shape[:2], n_next, x.shape[3]) for x in tensors]
    work = [dist.isend(x, (rank + 1) % n_ranks, tag=tag) for tag, x in enumerate(tensors)]
    work += [dist.irecv(x, (rank - 1) % n_ranks, tag=tag) for tag, x in enumerate(arriving)]

    def wait():
        for each in work:
            each.wait()
        return arriving

    return wait


def in_processes(q: Tensor, k: Tensor, v: Tensor, lengths, causal: bool = False) -> Tensor:
    """ring_attention in len(lengths) new processes, lengths[i] tokens in the i-th; joined slices."""
    check_slices(lengths, q, k)
    out = q.new_zeros(*q.shape[:3], v.shape[3]).share_memory_()
    with tempfile.TemporaryDirectory() as folder:
        processes.set_forkserver_preload(["torch.distributed"])         # imported once, not in every process
        arguments = f"{folder}/meet", q, k, v, list(lengths), causal, out
        processes.start_processes(_process, arguments, len(lengths), start_method="forkserver")
    return out


def _process(rank, meet, q, k, v, lengths, causal, out):
    # Name the loopback interface: without a network, the machine's own host name may not resolve.
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=len(lengths),
                            timeout=timedelta(seconds=60))
    start = sum(lengths[:rank])
    mine = slice(start, start + lengths[rank])
    out[:, :, mine] = ring_attention(q[:, :, mine], k[:, :, mine], v[:, :, mine], causal)
    dist.destroy_process_group()
