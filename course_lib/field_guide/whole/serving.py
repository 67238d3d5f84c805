"""Many prompts at once: chapter 8's engine with the decoder of a published model.

A step runs the decoder once over the tokens of all sequences that are scheduled. Products with weights run
over all tokens together; each sequence attends by itself, to keys and values in pages that sequences with the
same beginning share. A family whose layers keep anything else (latents, states, compressed text, an indexer's
keys), or keys of another shape in some layers, has no pages: `pageable` says so. """
from itertools import accumulate
from types import SimpleNamespace

import torch

from course_lib.field_guide.base import Recipe
from course_lib.field_guide.cache import Cache
from course_lib.field_guide.whole.decoder import Decoder
from course_lib.paged_attention import Engine, PagedKVCache, Scheduler


def shape_of_rows(decoder: Decoder) -> set:
    """(key heads, width of a key, width of a value) of every layer; None where it keeps something else."""
    recipes = [layer.recipes for layer in decoder.plan.layers]
    return {(r[0].n_kv_heads, r[0].head_dim, r[0].value_width) if len(r) == 1 and type(r[0]) is Recipe
            and r[0].reuses is None and r[0].indexer is None else None for r in recipes}


def pageable(decoder: Decoder) -> bool:
    shapes = shape_of_rows(decoder)
    return len(shapes) == 1 and None not in shapes


class Pass:
    """What all layers of one pass over several sequences share: of which rows of a layer's pool, block by block
    and head by head, each new token is one, and in which pieces (a head's share of a block) each sequence is."""

    def __init__(self, pool: PagedKVCache, batch: list):
        self.pool, self.counts, self.seen = pool, [n for _, n in batch], {}
        self.starts, self.ends = [s.computed for s, _ in batch], [s.computed + n for s, n in batch]
        size, device = pool.block_size, pool.keys.device
        heads = torch.arange(pool.keys.shape[2])[:, None]
        slots = torch.cat([pool.slots(s.name, s.computed, s.computed + n) for s, n in batch])
        self.new = ((slots // size * len(heads) + heads) * size + slots % size).flatten().to(device)
        tables = [pool.allocator.table(s.name).blocks for s, _ in batch]
        pieces = [(torch.tensor(blocks[:-(-end // size)]) * len(heads) + heads).flatten()
                  for blocks, end in zip(tables, self.ends)]
        self.kept, self.sizes = torch.cat(pieces).to(device), [len(some) for some in pieces]
        # for what is read, filled again in each layer: fresh memory for every one costs more than the copy
        self.rooms = [x.new_empty(len(self.kept), size * x.shape[-1]) for x in (pool.keys, pool.values)]


class Rows(Cache):
    """One layer of the sequences of a pass, which attend to what the pages keep of each."""

    def __init__(self, shared: Pass, layer: int):
        super().__init__()
        self.shared, self.layer, self.counts = shared, layer, shared.counts

    def extend(self, k, v):
        """Write the new rows of all sequences, then read the keys, and the values, of each."""
        pool = self.shared.pool
        return [self.of_each(*three) for three in zip((pool.keys, pool.values), (k, v), self.shared.rooms)]

    def of_each(self, pool, new, room):
        s, (heads, size, width) = self.shared, pool.shape[2:]
        pool[self.layer].view(-1, width)[s.new] = new.reshape(-1, width)
        torch.index_select(pool[self.layer].view(-1, size * width), 0, s.kept, out=room)
        return [x.view(1, heads, -1, width)[:, :, :end] for x, end in zip(room.split(s.sizes), s.ends)]

    def visible(self, layer) -> list:
        """A mask for each sequence, made once for all layers of one reach."""
        s, reach = self.shared, (layer.recipe.window, layer.recipe.chunk)
        if reach not in s.seen:
            s.seen[reach] = [layer.visible(torch.arange(start, end), torch.arange(end), None).to(s.new.device)
                             for start, end in zip(s.starts, s.ends)]
        return s.seen[reach]


class Server(Engine):
    """add_request, step and run are chapter 8's."""

    def __init__(self, decoder: Decoder, n_blocks: int, block_size: int = 16, **scheduling):
        (shape,), weight = shape_of_rows(decoder), decoder.embedding.weight
        self.decoder = decoder
        self.model = SimpleNamespace(config=SimpleNamespace(vocab_size=decoder.plan.vocab, context=1 << 40))
        self.cache = PagedKVCache(n_blocks, block_size, len(decoder.layers), *shape[:2], weight.dtype,
                                  weight.device, shape[2])
        self.scheduler, self.requests = Scheduler(self.cache, **scheduling), {}

    @torch.no_grad()
    def _forward(self, batch):
        chunks = [(s, s.computed, s.computed + n) for s, n in batch]
        ids = torch.tensor([[t for s, start, stop in chunks for t in s.tokens[start:stop]]])
        positions = torch.tensor([p for _, start, stop in chunks for p in range(start, stop)])
        counts = [n for _, n in batch]
        shared = Pass(self.cache, batch)
        caches = [[Rows(shared, layer)] for layer in range(len(self.decoder.layers))]
        last = [end - 1 for end in accumulate(counts)]
        return self.decoder(ids, positions, None, caches, last=last)[0].cpu()

    def _kv_bytes(self, batch):
        keys, values = self.cache.keys, self.cache.values
        return sum(s.computed + n for s, n in batch) * sum(
            x.shape[0] * x.shape[2] * x.shape[4] * x.element_size() for x in (keys, values))


def serve(decoder: Decoder, prompts: list, max_new_tokens: int, ends, seed: int,
          **sampling) -> list[list[int]]:
    """The new tokens of every prompt. Pages for the 16 longest texts, as so many are served at a time."""
    pages = sorted(-(-(len(prompt) + max_new_tokens) // 16) for prompt in prompts)
    server = Server(decoder, n_blocks=sum(pages[-16:]), token_budget=256)
    ends = [end for end in ends if end < decoder.plan.vocab]
    for number, prompt in enumerate(prompts):
        server.add_request(prompt, max_new_tokens, seed=seed + number, stop=ends, **sampling)
    return [samples[0] for samples in server.run().values()]
