"""Requests served step by step by the small model: who computes, who waits, whose pages (chapter 8)."""
from dataclasses import dataclass
from functools import lru_cache

from course_lib.explore.frame import Canvas, Choice, Explorable, Slider, amount
from course_lib.explore.looking import small_model
from course_lib.paged_attention import Engine

SYSTEM = "KING HENRY:\n"         # A, B and D begin with it
ARRIVALS = {0: ("A", SYSTEM + "My lord", 12), 3: ("B", SYSTEM + "I will", 12), 4: ("C", "Good night", 14),
            16: ("D", SYSTEM + "My lord, the", 8)}
NAMES = [name for name, _, _ in ARRIVALS.values()]
STEPS, BUDGET, LEFT, WIDE, LETTERS, LETTER = 40, 8, 20, 660, 126, 12


@dataclass(frozen=True)
class Moment:
    """What the engine looks like after a step."""
    happened: str
    states: dict                # name -> waiting, running, preempted or finished
    computed: dict              # name -> tokens whose keys and values are in its pages
    new: dict                   # name -> tokens computed in this step
    texts: dict
    tables: dict                # name -> (blocks, slots in use)
    references: list
    cached: list                # blocks that nobody holds and whose tokens are known
    read: int                   # bytes of keys and values that attention read


@lru_cache(maxsize=24)
def served(slots: int, size: int, share: str, preemption: str) -> list[Moment]:
    """The engine after each of STEPS steps, a request added where it arrives."""
    model, tokenizer = small_model()
    engine = Engine(model, slots // size, size, token_budget=BUDGET, max_running=4, preemption=preemption,
                    share_prefixes=share == "shared")
    moments = []
    for step in range(STEPS):
        arrived = ARRIVALS.get(step)
        if arrived:
            engine.add_request(tokenizer.encode(arrived[1]), arrived[2])
        before = {r.id for r in engine.requests.values() if r.finished}
        moments.append(moment(engine, tokenizer, engine.step(), arrived, before))
    return moments


def moment(engine: Engine, tokenizer, done, arrived, before: set) -> Moment:
    scheduler, allocator = engine.scheduler, engine.cache.allocator
    queues = {"waiting": scheduler.waiting, "running": scheduler.running, "preempted": scheduler.preempted}
    states = {s.request.id: name for name, queue in queues.items() for s in queue}
    sequences = {NAMES[r.id]: r.samples[0] for r in engine.requests.values()}
    new = {NAMES[request]: n for (request, _), n in done.scheduled.items()}
    said = [f"{arrived[0]} arrives"] if arrived else []
    said += [f"{NAMES[request]} loses its pages" for request, _ in done.preempted]
    said += [f"{name} computes {amount(n, 'tokens')}" for name, n in new.items()]
    said += [f"{NAMES[r.id]} ends" for r in engine.requests.values() if r.finished and r.id not in before]
    return Moment(
        happened="; ".join(said) or "nothing is left to do",
        states={name: states.get(s.request.id, "finished") for name, s in sequences.items()},
        computed={name: s.computed * (s.name in allocator.tables) for name, s in sequences.items()}, new=new,
        texts={name: tokenizer.decode(s.tokens) for name, s in sequences.items()},
        tables={NAMES[request]: (list(t.blocks), t.length) for (request, _), t in allocator.tables.items()},
        references=list(allocator.references),
        cached=[b for b in range(allocator.n_blocks) if allocator.is_cached(b)], read=done.kv_bytes)


class Scheduling(Explorable):
    title = "Requests served, step by step"
    caption = (f"The chapter's engine with the small model: at most {BUDGET} tokens per step, four "
               "requests. Each frame is a page, each square in it a slot: coloured where a key and a "
               "value are stored, pale where a slot is reserved, grey where no request holds the page and "
               "its tokens are still known.")
    controls = (Slider("step", range(STEPS), 6, play=True),
                Slider("size", (2, 4, 8, 16), 4, "slots per page"),
                Choice("slots", (48, 64, 96), 48, "slots in all"),
                Choice("prefixes", ("shared", "not shared")), Choice("preemption", ("recompute", "swap")))
    page = {"step": (0, 2, 3, 4, 6, 8, 10, 13, 14, 16, 18, 22, 26), "size": (4,), "slots": (48,),
            "prefixes": ("shared",), "preemption": ("recompute",)}

    def draw(self, step, size, slots, prefixes, preemption):
        now = served(slots, size, prefixes, preemption)[step]
        canvas, used = Canvas(700, 268), slots_used(now, size)
        canvas.text(LEFT, 20, f"step {step}: {now.happened}", bold=True)
        draw_pages(canvas, now, size, slots, used)
        for row, name in enumerate(now.states):
            draw_request(canvas, 134 + 31 * row, now, name)
        held = sum(count > 0 for count in now.references)
        waste = held * size - sum(stored for stored, _ in used.values())
        canvas.text(LEFT, 112, fill="faint", text=f"{held} of {slots // size} pages are held; "
                                                  f"{amount(waste, 'slots')} "
                    f"in them without a key; attention read {now.read:,} bytes in this step.")
        told = "; ".join(f"{name} {state}" + (f", {now.computed[name]} tokens stored in pages "
                                              f"{now.tables[name][0]}" if name in now.tables else "")
                         for name, state in now.states.items())
        return canvas, (f"Step {step}, pages of {size}: {now.happened}. {told}. {held} of {slots // size} "
                        f"pages are held; in them {amount(waste, 'slots')} without a key. Known besides: "
                        f"{amount(len(now.cached), 'pages')}. Attention read {now.read:,} bytes.")


def slots_used(now: Moment, size: int) -> dict[int, tuple[int, int]]:
    """By block: the slots that store a key and a value, and those that are reserved."""
    used = {}
    for name, (blocks, length) in now.tables.items():
        for n, block in enumerate(blocks):
            here = (min(size, max(0, count - n * size)) for count in (now.computed[name], length))
            used[block] = tuple(map(max, used.get(block, (0, 0)), here))
    return used


def draw_pages(canvas: Canvas, now: Moment, size: int, slots: int, used: dict) -> None:
    slot, gap = (WIDE - 2 * slots // size) / slots, 2
    for block, count in enumerate(now.references):
        owners = [name for name, (blocks, _) in now.tables.items() if block in blocks]
        left, known = LEFT + (size * slot + gap) * block, block in now.cached
        stored, reserved = used.get(block, (size * known, size * known))
        colour = str(NAMES.index(owners[0])) if owners else "soft"
        canvas.rect(left, 34, slot * reserved, 34, fill=colour, stroke=None, shade=0.25)
        canvas.rect(left, 34, slot * stored, 34, fill=colour, stroke=None)
        canvas.frames([(left + slot * n, 34) for n in range(size)], slot, 34)
        canvas.rect(left, 34, size * slot, 34, stroke="ink" if owners else "line", shade=0,
                    about=f"page {block}: {', '.join(owners) or 'known' * known or 'free'}")
        if count > 1:
            canvas.text(left + size * slot / 2, 82, f"x{count}", size=11, anchor="middle", bold=True)


def draw_request(canvas: Canvas, y: float, now: Moment, name: str) -> None:
    """Name, state and text: coloured where its keys and values are stored, the accent where they are new."""
    state, text, done = now.states[name], now.texts[name].replace("\n", "/"), now.computed[name]
    own, new = str(NAMES.index(name)), now.new.get(name, 0) * (done > 0)
    canvas.rect(LEFT, y, 24, 22, fill=own, text=name, size=12)
    canvas.text(LEFT + 32, y + 15, state, fill="ink" if state == "running" else "faint")
    canvas.rect(LETTERS, y, LETTER * done, 22, fill=own, stroke=None)
    canvas.rect(LETTERS + LETTER * (done - new), y, LETTER * new, 22, fill="accent", stroke=None)
    canvas.frames([(LETTERS + LETTER * at, y) for at in range(len(text))], LETTER, 22)
    for at, character in enumerate(text):
        canvas.text(LETTERS + LETTER * (at + 0.5), y + 15, "_" if character == " " else character, size=11,
                    anchor="middle")
    pages = ", ".join(map(str, now.tables.get(name, ([],))[0]))
    canvas.text(686, y + 15, f"pages {pages}" if pages and len(pages) < 24 else "", size=10, anchor="end",
                fill="faint")
