"""Chapter 8: many requests served at once by one language model over a paged cache.

A step runs the model once over a batch of tokens: one of each sequence that generates, a chunk of each prompt that
still has to be read. The scheduler says which, the engine runs them. Order of service: first come, first served;
when blocks run out, the youngest gives its blocks back and waits (preemption), so the oldest always gets on.
"""
import math
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Callable

import torch
from torch.nn import functional as F

from course_lib.checks import check_count
from course_lib.paged_attention.cache import OutOfBlocks, PagedKVCache, paged_prefill, paged_prefill_kernel
from course_lib.checks.kv_cache import check_sampling
from course_lib.kv_cache import next_token_probabilities


@dataclass(eq=False)
class Sequence:
    """One sample of a request: its prompt and what was generated so far."""
    request: "Request"
    sample: int
    tokens: list
    computed: int = 0              # how many of tokens have their keys and values in the cache
    swapped: tuple | None = None   # these, while they are kept outside of it
    finished: bool = False

    @property
    def name(self):
        return self.request.id, self.sample

    @property
    def generated(self) -> list:
        return self.tokens[len(self.request.prompt):]


@dataclass(eq=False)
class Request:
    id: int
    prompt: list
    max_new_tokens: int
    sampling: dict = field(default_factory=dict)       # temperature, top_k, top_p, repetition_penalty
    stop: frozenset = frozenset()
    on_token: Callable | None = None
    generators: list = field(default_factory=list)     # of randomness, one a sample
    samples: list = field(default_factory=list)        # Sequence; one until the prompt is read, then all
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        return self.cancelled or (len(self.samples) == len(self.generators) and all(s.finished for s in self.samples))


@dataclass
class Step:
    """What one step did. Sequences are named (request id, sample)."""
    scheduled: dict = field(default_factory=dict)      # name -> tokens computed for it
    tokens: list = field(default_factory=list)         # (request id, sample, token) of every new token
    preempted: list = field(default_factory=list)      # names
    kv_bytes: int = 0                                  # keys and values that attention read, each once a sequence


class Scheduler:
    """Who computes how many tokens in the next step. It holds and gives back the blocks of the cache.

    waiting: not begun; running: holds blocks; preempted: gave its blocks back and goes before those waiting.
    """

    def __init__(self, cache: PagedKVCache, token_budget=64, max_running=16, preemption="recompute",
                 share_prefixes=True):
        for name, value in (("token_budget", token_budget), ("max_running", max_running)):
            check_count(name, value, 1)
        if preemption not in ("recompute", "swap"):
            raise ValueError(f'preemption must be "recompute" or "swap"; got {preemption!r}')
        self.cache, self.token_budget, self.max_running = cache, token_budget, max_running
        self.preemption, self.share_prefixes = preemption, share_prefixes
        self.waiting, self.running, self.preempted = deque(), [], deque()

    def add(self, sequence):
        self.waiting.append(sequence)

    def schedule(self):
        """([(sequence, tokens to compute)], [preempted sequences]) of one step, slots included."""
        batch, preempted, budget = [], [], self.token_budget
        for sequence in list(self.running):                            # the oldest first
            if budget == 0 or sequence not in self.running:            # it may have been preempted just now
                continue
            if not self._make_room(sequence, preempted):
                break
            n = min(budget, len(sequence.tokens) - sequence.computed)
            batch.append((sequence, n))
            budget -= n
        # A new one would only be thrown out again where blocks are short.
        while budget > 0 and not preempted and len(self.running) < self.max_running:
            queue = self.preempted or self.waiting
            if not queue or not self._start(queue[0]):
                break
            sequence = queue.popleft()
            n = min(budget, len(sequence.tokens) - sequence.computed)
            batch.append((sequence, n))
            budget -= n
        return batch, preempted

    def fork(self, parent, child):
        """child goes on from where parent is: with its blocks if there is a place, else when there is one."""
        if len(self.running) < self.max_running:
            self.cache.allocator.fork(parent.name, child.name)
            child.computed = parent.computed
            self.running.append(child)
        else:
            self.preempted.append(child)

    def computed(self, sequence, n):
        """n more tokens of sequence are in the cache; their whole blocks may be shared."""
        sequence.computed += n
        if self.share_prefixes:
            self.cache.allocator.register(sequence.name, sequence.tokens[:sequence.computed])

    def preempt(self, sequence):
        """Take the blocks of a running sequence. "swap" keeps their content, "recompute" computes it again."""
        if sequence not in self.running:
            raise ValueError(f"sequence must be running; got {sequence.name}")
        if self.preemption == "swap":
            blocks = self.cache.allocator.tables[sequence.name].blocks
            n_used = math.ceil(sequence.computed / self.cache.block_size)
            sequence.swapped = self.cache.read_blocks(blocks[:n_used])
        else:
            sequence.computed = 0
        self._leave(sequence)
        self.preempted.appendleft(sequence)          # the youngest goes first, so the oldest ends up in front

    def remove(self, sequence):
        """Finished or cancelled, wherever it is."""
        if sequence in self.running:
            self._leave(sequence)
        for queue in (self.waiting, self.preempted):
            if sequence in queue:
                queue.remove(sequence)
        sequence.swapped = None
        sequence.finished = True

    def _leave(self, sequence):
        self.cache.allocator.free(sequence.name)
        self.running.remove(sequence)

    def _make_room(self, sequence, preempted):
        """A slot for each token of a running sequence; False if it had to be preempted itself."""
        allocator = self.cache.allocator
        while allocator.tables[sequence.name].length < len(sequence.tokens):
            try:
                self.cache.append_slot(sequence.name)
            except OutOfBlocks:
                youngest = self.running[-1]
                self.preempt(youngest)
                preempted.append(youngest)
                if youngest is sequence:
                    return False
        return True

    def _start(self, sequence):
        allocator, share = self.cache.allocator, self.share_prefixes and sequence.swapped is None
        if not allocator.can_allocate(sequence.tokens, share):
            return False
        n_cached = allocator.allocate(sequence.name, sequence.tokens, share)
        if sequence.swapped is None:
            sequence.computed = n_cached
        else:
            n_used = math.ceil(sequence.computed / self.cache.block_size)
            self.cache.write_blocks(allocator.tables[sequence.name].blocks[:n_used], sequence.swapped)
            sequence.swapped = None
        self.running.append(sequence)
        return True


class Engine:
    """Serves requests with a LanguageModel: add_request, then step until there is nothing left, or run.

    Each sample draws from a generator of its own, seeded with seed + its number, so what is served depends
    neither on the other requests nor on the schedule (in float64; in float32 up to rounding). With kernels=True
    attention is computed by kernels/paged_attention.cu, else by the reference, which gathers the blocks.
    """

    def __init__(self, model, n_blocks, block_size=16, kernels=False, **scheduling):
        weight = model.embedding.weight
        n_kv_heads, key_width, value_width = kept_of_a_token(model)
        if kernels and (weight.dtype != torch.float32 or key_width != value_width
                        or any(block.attention.window for block in model.blocks)):
            raise ValueError("kernels must be False unless the model is float32, has values as wide as its keys and no "
                             f"window; got {weight.dtype}, attention {model.config.attention!r}")
        self.model, self.kernels = model, kernels
        self.cache = PagedKVCache(n_blocks, block_size, len(model.blocks), n_kv_heads, key_width, weight.dtype,
                                  weight.device, value_width)
        self.scheduler = Scheduler(self.cache, **scheduling)
        self.requests: dict = {}                     # id -> Request, all that were ever added

    def add_request(self, prompt, max_new_tokens, n_samples=1, temperature=0.0, seed=0, stop=(), on_token=None,
                    top_k=None, top_p=None, repetition_penalty=1.0) -> int:
        """The id of a new request. on_token(id, sample, token) is called after the step that made the token.

        A sample ends after max_new_tokens or with the first token in stop, which it keeps. The chances of the next
        token are those of next_token_probabilities; seen are the prompt and what was generated.
        """
        prompt, stop = self._check_tokens("prompt", prompt), self._check_tokens("stop", stop)
        if not prompt:
            raise ValueError("prompt must hold at least one token; got none")
        for name, value in (("max_new_tokens", max_new_tokens), ("n_samples", n_samples)):
            check_count(name, value, 1)
        check_count("seed", seed, 0)
        check_sampling(temperature, top_k, top_p, repetition_penalty)
        if on_token is not None and not callable(on_token):
            raise ValueError(f"on_token must be a function or None; got {on_token!r}")
        slots = len(prompt) + max_new_tokens - 1                 # the last token is never read
        room = min(self.cache.allocator.n_blocks * self.cache.block_size, self.model.config.context)
        if slots > room:
            raise ValueError(f"prompt must leave room for max_new_tokens={max_new_tokens} in {room} slots (the "
                             f"whole cache, or the model's context); got {len(prompt)} tokens")
        generators = [torch.Generator().manual_seed(seed + i) for i in range(n_samples)]
        sampling = dict(temperature=temperature, top_k=top_k, top_p=top_p, repetition_penalty=repetition_penalty)
        request = Request(len(self.requests), prompt, max_new_tokens, sampling, frozenset(stop), on_token, generators)
        request.samples.append(Sequence(request, 0, list(prompt)))
        self.requests[request.id] = request
        self.scheduler.add(request.samples[0])
        return request.id

    def cancel(self, request_id) -> bool:
        """End a request and free its blocks. False if it had ended already: cancelling twice does no harm."""
        request = self._request(request_id)
        if request.finished:
            return False
        request.cancelled = True
        for sequence in request.samples:
            if not sequence.finished:
                self.scheduler.remove(sequence)
        return True

    def output(self, request_id) -> list:
        """The tokens generated so far, a list for each sample."""
        return [sequence.generated for sequence in self._request(request_id).samples]

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running or self.scheduler.preempted)

    def step(self) -> Step:
        """One pass of the model over what the scheduler chose; an empty Step if there was nothing to do."""
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
        """Step until nothing is left (or max_steps times). {request id: output of all samples}"""
        if max_steps is not None:
            check_count("max_steps", max_steps, 0)
        steps = 0
        while self.busy and (max_steps is None or steps < max_steps):
            self.step()
            steps += 1
        return {request_id: self.output(request_id) for request_id in self.requests}

    @torch.no_grad()
    def _forward(self, batch):
        """The logits (len(batch), vocab_size) after the last token of each chunk. All chunks lie in one row, so
        that every matrix product runs once; only attention knows whose token is whose."""
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
        """The next token; after a prompt, the first of every sample: they part here and share what came before."""
        request, parting = sequence.request, []
        if len(request.samples) == 1 and len(request.generators) > 1:
            parting = [Sequence(request, i, list(sequence.tokens)) for i in range(1, len(request.generators))]
            request.samples += parting
            for child in parting:
                self.scheduler.fork(sequence, child)
        for each in (sequence, *parting):
            seen = torch.tensor(each.tokens, device=logits.device)
            chances = next_token_probabilities(logits, **request.sampling, seen=seen).cpu()
            token = int(torch.multinomial(chances, 1, generator=request.generators[each.sample]))
            each.tokens.append(token)
            done.tokens.append((request.id, each.sample, token))
            if len(each.generated) == request.max_new_tokens or token in request.stop:
                self.scheduler.remove(each)

    def _stream(self, done):
        """Callbacks come last, when all is in order: they may add and cancel requests. The first error is raised
        after all were called; the rest of a request cancelled meanwhile is not delivered."""
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
        a_token = keys.shape[2] * (keys.shape[4] + values.shape[4]) * keys.element_size()
        tokens = 0
        for block in self.model.blocks:
            for sequence, n in batch:
                length, window = sequence.computed + n, block.attention.window
                tokens += length if window is None else min(length, window + n - 1)
        return a_token * tokens

    def _check_tokens(self, name, tokens):
        vocabulary = self.model.config.vocab_size
        tokens = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
        if not isinstance(tokens, (list, tuple, set, frozenset)):
            raise ValueError(f"{name} must be a list of tokens; got {tokens!r}")
        for token in tokens:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocabulary:
                raise ValueError(f"{name} must hold whole numbers from 0 to {vocabulary - 1}; got {token!r}")
        return list(tokens)

    def _request(self, request_id):
        if request_id not in self.requests:
            raise ValueError(f"request_id must be of a request that was added; got {request_id!r}")
        return self.requests[request_id]


def kept_of_a_token(model):
    """(n_kv_heads, width of a key, width of a value) that each layer of model keeps of a token, if pages can."""
    layers = [block.attention for block in model.blocks]
    for i, layer in enumerate(layers):
        if "attend" in vars(layer):
            raise ValueError("model must attend by its own function, as after set_attention(): "
                             "the engine puts paged attention in its place")
        if getattr(layer, "recurrent", False):
            raise ValueError("model must keep keys and values of every token, which is what pages hold; got layer "
                             f"{i}, {type(layer).__name__}, whose past is a state of fixed size: use its own cache")
    kept = {(layer.n_kv_heads, layer.key_width, layer.value_width) for layer in layers}
    if len(kept) > 1:
        raise ValueError("model must keep the same of a token in every layer, as all have one table of blocks; "
                         f"got (n_kv_heads, width of a key, width of a value) in {sorted(kept)}")
    return kept.pop()
