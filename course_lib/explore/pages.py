"""Pages of a cache changing hands, request by request (chapter 8)."""
from course_lib.explore.frame import Canvas, Explorable, Slider, amount
from course_lib.paged_attention import BlockAllocator, OutOfBlocks

SLOTS = 48
PROMPT = tuple(range(8))        # a system prompt of 8 tokens that A and B begin with
COLOURS = {"A": "0", "B": "1", "C": "2", "A2": "3", "D": "4"}


def steps():
    """(what happens, function of an allocator)."""
    a, b, c = [*PROMPT, 20, 21, 22], [*PROMPT, 30, 31], list(range(40, 46))
    yield "nothing has arrived", lambda pool: None
    yield "A arrives with 11 tokens", lambda pool: pool.allocate("A", a)
    yield "A's prompt is computed: its whole pages may be shared", lambda pool: pool.register("A", a)
    yield "B arrives: its first 8 tokens are A's", lambda pool: pool.allocate("B", b)
    yield "C arrives with 6 tokens of its own", lambda pool: pool.allocate("C", c)
    yield "A is forked: A2 holds the same pages", lambda pool: pool.fork("A", "A2")
    yield "A2 writes a token: a page that is shared is copied first", lambda pool: pool.append_slot("A2")
    yield "A writes a token", lambda pool: pool.append_slot("A")
    yield ("A and A2 end; known pages stay until they are needed",
           lambda pool: [pool.free("A"), pool.free("A2")])
    yield "C writes 12 tokens more", lambda pool: [pool.append_slot("C") for _ in range(12)]
    yield "D arrives with A's tokens and finds its pages", lambda pool: pool.allocate("D", a)


def replay(size: int, step: int) -> tuple[BlockAllocator, list[str]]:
    """The allocator after some steps, and what happened: a request that finds no page is turned away."""
    pool, said = BlockAllocator(SLOTS // size, size), []
    for about, act in list(steps())[:step + 1]:
        try:
            act(pool)
        except OutOfBlocks:
            about += ": no page is free, it has to wait"
        said.append(about)
    return pool, said


class Pages(Explorable):
    title = "Pages changing hands"
    caption = ("A cache of 48 slots in pages, and the requests that hold them. A number in a page says how "
               "many sequences hold it; a grey one is held by none, and its tokens are still known.")
    controls = (Slider("step", range(11), 3, play=True), Slider("size", (2, 4, 8), 4, "slots per page"))
    page = {"step": range(11), "size": (4, 8)}

    def draw(self, step, size):
        pool, said = replay(size, step)
        held = sum(count > 0 for count in pool.references)
        canvas = Canvas(700, 200)
        canvas.text(20, 20, f"{step}. {said[-1]}", bold=True)
        wide = 660 / pool.n_blocks
        for number, count in enumerate(pool.references):
            owners = [name for name, table in pool.tables.items() if number in table.blocks]
            cached = pool.is_cached(number)
            fill = COLOURS[owners[0]] if owners else "soft" if cached else "empty"
            canvas.rect(20 + wide * number, 34, wide - 3, 40, fill=fill, stroke="ink" if owners else "line",
                        text=count or "",
                        about=f"page {number}: {', '.join(owners) or 'known' * cached or 'free'}")
            canvas.text(20 + wide * (number + 0.5), 88, number, size=11, anchor="middle", fill="faint")
        for row, (name, table) in enumerate(pool.tables.items()):
            canvas.rect(20, 100 + 24 * row, 34, 18, fill=COLOURS[name], text=name)
            canvas.text(62, 114 + 24 * row, f"{table.length} tokens in pages {table.blocks}", size=12)
        filled = {}
        for table in pool.tables.values():
            for n, block in enumerate(table.blocks):
                filled[block] = max(filled.get(block, 0), min(size, table.length - n * size))
        waste = held * size - sum(filled.values())
        canvas.text(680, 114, f"{held} of {pool.n_blocks} pages are held", anchor="end")
        canvas.text(680, 134, f"with {amount(waste, 'empty slots')}", anchor="end", fill="faint")
        tables = "; ".join(f"{name}: {table.length} tokens in pages {table.blocks}"
                           for name, table in pool.tables.items())
        return canvas, (f"Step {step}, pages of {size}: {said[-1]}. {tables or 'No sequence'}. {held} of "
                        f"{pool.n_blocks} pages are held, with {amount(waste, 'empty slots')}.")
