"""Many requests served at once by one language model over a paged cache.

A step runs the model once over a batch of tokens: one of each sequence that generates, and a chunk of each
prompt that has not been read yet. The scheduler chooses them, the engine computes them."""
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch.nn import functional as F

from course_lib.checks import check_count
from course_lib.checks.paged_attention import (check_engine_kernels, check_pageable, check_request,
                                               check_request_id)
from course_lib.kv_cache import next_token_probabilities
from .cache import PagedKVCache
from .kernels import paged_prefill_kernel
from .paged import paged_prefill
from .scheduler import Request, Scheduler, Sequence


@dataclass
class Step:
    """The result of one step. Sequences are named (request id, sample)."""
    scheduled: dict = field(default_factory=dict)      # name -> tokens computed for it
    tokens: list = field(default_factory=list)         # (request id, sample, token) of every new token
    preempted: list = field(default_factory=list)      # names
    kv_bytes: int = 0                                  # of keys and values that attention read


class Engine:
    """Serves requests with a LanguageModel: add_request, then step until none is left, or run.

    Each sample draws from a generator of its own, seeded with seed + its number, so its tokens depend neither
    on the other requests nor on the schedule (in float64; in float32 up to rounding). With kernels=True
    attention is computed by kernels/paged_attention.cu, else by the reference, which gathers the blocks."""

    def __init__(self, model, n_blocks, block_size=16, kernels=False, **scheduling):
        layers, weight = [block.attention for block in model.blocks], model.embedding.weight
        check_pageable(layers)
        n_kv_heads, *widths = layers[0].n_kv_heads, layers[0].key_width, layers[0].value_width
        check_engine_kernels(kernels, model, widths)
        self.model, self.kernels = model, kernels
        self.cache = PagedKVCache(n_blocks, block_size, len(layers), n_kv_heads, widths[0], weight.dtype,
                                  weight.device, v_dim=widths[1])
        self.scheduler = Scheduler(self.cache, **scheduling)
        self.requests: dict = {}                     # id -> Request, finished ones included

    def add_request(self, prompt, max_new_tokens, n_samples=1, temperature=0.0, seed=0, stop=(),
                    on_token=None, top_k=None, top_p=None, repetition_penalty=1.0) -> int:
        """The id of a new request. on_token(id, sample, token) is called after the step that made the token.

        A sample ends after max_new_tokens or with the first token in stop, which it keeps. Tokens are drawn
        by next_token_probabilities; the repetition penalty counts the prompt and the tokens generated."""
        sampling = dict(temperature=temperature, top_k=top_k, top_p=top_p,
                        repetition_penalty=repetition_penalty)
        n_slots = self.cache.allocator.n_blocks * self.cache.block_size
        prompt, stop = check_request(self.model, n_slots, prompt, stop, max_new_tokens, n_samples, seed,
                                     on_token, sampling)
        generators = [torch.Generator().manual_seed(seed + i) for i in range(n_samples)]
        request = Request(len(self.requests), prompt, max_new_tokens, sampling, frozenset(stop), on_token,
                          generators)
        request.samples.append(Sequence(request, 0, list(prompt)))
        self.requests[request.id] = request
        self.scheduler.add(request.samples[0])
        return request.id

    def cancel(self, request_id) -> bool:
        """End a request and free its blocks. False if it had ended already; cancelling twice is harmless."""
        request = self._request(request_id)
        if request.finished:
            return False
        request.cancelled = True
        for sequence in request.samples:
            if not sequence.finished:
                self.scheduler.remove(sequence)
        return True

    def output(self, request_id) -> list:
        """The tokens generated so far, one list per sample."""
        return [sequence.generated for sequence in self._request(request_id).samples]

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running or self.scheduler.preempted)

    def step(self) -> Step:
        """One pass of the model over the scheduled tokens; an empty Step if none are scheduled."""
        batch, preempted = self.scheduler.schedule()
        done = Step({s.name: n for s, n in batch}, preempted=[s.name for s in preempted])
        if not batch:
            return done
        logits = self._forward(batch)
        done.kv_bytes = self._kv_bytes(batch)
        for (sequence, n), row in zip(batch, logits):
            self.scheduler.computed(sequence, n)
            if sequence.computed == len(sequence.tokens):
                self._sample(sequence, row, done)
        self._stream(done)
        return done

    def run(self, max_steps=None) -> dict:
        """Step until no request is left (or max_steps times). {request id: output of all samples}"""
        check_count("max_steps", max_steps, 0, optional=True)
        steps = 0
        while self.busy and (max_steps is None or steps < max_steps):
            self.step()
            steps += 1
        return {request_id: self.output(request_id) for request_id in self.requests}

    @torch.no_grad()
    def _forward(self, batch):
        """The logits (len(batch), vocab_size) after the last token of each chunk. All chunks are
        concatenated, so that every matrix product runs once; only attention separates the sequences."""
        model, cache, device = self.model, self.cache, self.model.embedding.weight.device
        chunks = [(s, s.computed, s.computed + n) for s, n in batch]
        tokens = torch.tensor([t for s, start, stop in chunks for t in s.tokens[start:stop]], device=device)
        positions = torch.tensor([p for _, start, stop in chunks for p in range(start, stop)], device=device)
        slots = torch.cat([cache.slots(s.name, start, stop) for s, start, stop in chunks])
        tables, _ = cache.tables([s.name for s, _, _ in chunks])
        counts, lengths = [n for _, n in batch], torch.tensor([stop for _, _, stop in chunks])
        x = model.embedding(tokens)[None]
        for i, block in enumerate(model.blocks):
            attention, rope = block.attention, (model.cos, model.sin) if block.rope else None
            q, k, v = attention.project(block.attention_norm(x))
            q, k = (attention.rotate(y, rope, positions) for y in (q, k))
            cache.write(i, slots, k[0].transpose(0, 1), v[0].transpose(0, 1))
            given = q[0].transpose(0, 1), cache, tables, lengths, counts, i, attention.scale
            heads = (paged_prefill_kernel(*given) if self.kernels
                     else paged_prefill(*given, attention.window, attention.values))
            x = x + attention.finish(heads.transpose(0, 1)[None])
            x = x + block.feed_forward(block.feed_forward_norm(x))
        last = [end - 1 for end in accumulate(counts)]
        return F.linear(model.final_norm(x[0, last]), model.embedding.weight)

    def _sample(self, sequence, logits, done):
        """Draw the next token. After the prompt, fork the others, which share its blocks, and draw for each."""
        request, forks = sequence.request, []
        if len(request.samples) == 1 and len(request.generators) > 1:
            forks = [Sequence(request, i, list(sequence.tokens)) for i in range(1, len(request.generators))]
            request.samples += forks
            for child in forks:
                self.scheduler.fork(sequence, child)
        for each in (sequence, *forks):
            seen = torch.tensor(each.tokens, device=logits.device)
            probabilities = next_token_probabilities(logits, **request.sampling, seen=seen).cpu()
            token = int(probabilities.argmax() if request.sampling["temperature"] == 0 else torch.multinomial(
                probabilities, 1, generator=request.generators[each.sample]))
            each.tokens.append(token)
            done.tokens.append((request.id, each.sample, token))
            if len(each.generated) == request.max_new_tokens or token in request.stop:
                self.scheduler.remove(each)

    def _stream(self, done):
        """Call the callbacks, last, because they may add and cancel requests. Tokens of a request that one of
        them cancels are not delivered. An error (the first) is raised after all were called."""
        error = None
        for request_id, sample, token in done.tokens:
            request = self.requests[request_id]
            if request.on_token is not None and not request.cancelled:
                try:
                    request.on_token(request_id, sample, token)
                except Exception as raised:
                    error = error or raised
        if error is not None:
            raise error

    def _kv_bytes(self, batch):
        keys, values = self.cache.keys, self.cache.values
        bytes_per_token = keys.shape[2] * (keys.shape[4] + values.shape[4]) * keys.element_size()
        tokens = 0
        for block in self.model.blocks:
            for sequence, n in batch:
                length, window = sequence.computed + n, block.attention.window
                tokens += length if window is None else min(length, window + n - 1)
        return bytes_per_token * tokens

    def _request(self, request_id):
        check_request_id(request_id, self.requests)
        return self.requests[request_id]
