"""The figures of chapter 8 that are no maps of memory, each with words made from what it draws."""
from course_lib import figures
from course_lib.figures import COLOURS, INK

ACCENT, GREY = COLOURS[5], "#666666"
FILLS = ("#d6e6f4", "#fbe6c4", "#cfeade", "#eedbe8")


def table_lookup(tables, lengths, n_pages, size=4):
    """Sequences cut into pages, their block tables, and the pool: tables {name: [page, ...]}."""
    fig, ax = figures.new(8.6, 3.0)
    cell, width = 0.5, 0.5 * size
    owner, told = {}, []
    for s, (name, table) in enumerate(tables.items()):
        x = s * (width * 2 + 2.4)
        for i, page in enumerate(table):
            left = x + i * (width + 0.25)
            for slot in range(size):
                p = i * size + slot
                full = p < lengths[name]
                _cell(ax, left + slot * cell, 0, cell, FILLS[s] if full else "white",
                      f"{name}{p}" if full else "")
            _cell(ax, left + width / 2 - 0.25, 1.15, cell, FILLS[s], str(page))
            at = (page % n_pages) * (width + 0.25) + width / 2
            figures.arrow(ax, (left + width / 2, 0.55), (left + width / 2, 1.1), GREY, 0.9)
            figures.arrow(ax, (left + width / 2, 1.7), (at, 2.75), ACCENT, 0.9)
            owner[page] = (s, name, i)
        told.append(f"{name}: {lengths[name]} tokens, block table {table}")
    for page in range(n_pages):
        left = page * (width + 0.25)
        ax.text(left + width / 2, 3.42, f"page {page}", ha="center", va="top", fontsize=8.5, color=INK)
        for slot in range(size):
            s, name, i = owner.get(page, (0, "", 0))
            p = i * size + slot
            full = page in owner and p < lengths[name]
            _cell(ax, left + slot * cell, 2.8, cell, FILLS[s] if full else "white",
                  f"{name}{p}" if full else "")
    for y, text in ((0.25, "sequences"), (1.4, "block tables"), (3.05, "pool")):
        ax.text(-0.3, y, text, ha="right", va="center", fontsize=9, color=INK)
    figures.plain(ax, xlim=(-1.9, n_pages * (width + 0.25)), ylim=(3.9, -0.1))
    figures.show(fig, alt=f"Pages of {size} slots, {n_pages} in the pool. " + "; ".join(told) + ".",
                 caption="A table's i-th entry is the page that holds the i-th group of tokens. Only a last "
                         "page has empty slots.")


def shared_pages(texts, tables, counts):
    """Pages of texts with the same beginning: texts {name: [text of each page]}, tables {name: [page]}."""
    fig, ax = figures.new(8.6, 0.85 * len(texts) + 1.1)
    place, told = {}, []
    for y, (name, pieces) in enumerate(texts.items()):
        ax.text(-0.2, y + 0.3, name, ha="right", va="center", fontsize=9, color=INK)
        for x, (piece, page) in enumerate(zip(pieces, tables[name])):
            if page not in place:
                place[page] = (1.5 * x, y)
                shared = counts[page] > 1
                ax.add_patch(figures.rectangle(1.5 * x, y, 1.25, 0.6, facecolor=FILLS[1 if shared else 0],
                                               edgecolor=INK, linewidth=0.8, hatch="//" if shared else ""))
                ax.text(1.5 * x + 0.62, y + 0.3, piece.replace(" ", "_"), ha="center", va="center",
                        fontsize=8.5, color=INK, family="monospace", bbox=figures.paper())
                ax.text(1.5 * x + 0.62, y + 0.64,
                        f"page {page}, {counts[page]} table{'s' * (counts[page] > 1)}", ha="center", va="top",
                        fontsize=7, color=GREY)
            if x:
                (x0, y0), (x1, y1) = place[tables[name][x - 1]], place[page]
                figures.arrow(ax, (x0 + 1.25, y0 + 0.3), (x1, y1 + 0.3), GREY, 0.9)
        told.append(f"{name}: pages {', '.join(str(page) for page in tables[name])}")
    longest = max(map(len, texts.values()))
    figures.plain(ax, xlim=(-1, 1.5 * longest), ylim=(len(texts) + 0.1, -0.1))
    common = [page for page in place if counts[page] > 1]
    figures.show(fig, alt="Chains of pages. " + "; ".join(told) + f". In more than one table: {common}.",
                 caption="An arrow is the chain of hashes: a page is looked up by its tokens and its "
                         "predecessor. Hatched pages are in two tables.")


def preempted(held, needs, free, kept, left):
    """The pages before and after one step in which they run out, each with the sequence that holds it."""
    before = [f"s{i}" for i, n in enumerate(held) for _ in range(n)] + [""] * free
    new = [f"s{i}" for i, n in enumerate(needs[:kept]) for _ in range(n)]
    after = before[:sum(held[:kept])] + new + [""] * left
    told = [f"{title}: pages {[cells.count(f's{i}') for i in range(n)]}, free {cells.count('')}"
            for title, cells, n in (("before", before, len(held)), ("after", after, kept))]
    changed = [n for n, owner in enumerate(before) if owner != after[n]]
    figures.memory({"before": before, "after": after},
                   owners={f"s{i}": f"sequence {i}" for i in range(len(held))},
                   arrows=[(("before", n), ("after", n)) for n in changed],
                   alt=". ".join(told) + f". Needed: {needs}.",
                   caption="A cell is a page. The youngest sequence gives its pages back (arrows), for those "
                           "that need one more.")


def _cell(ax, x, y, size, colour, text):
    figures.box(ax, x, y, size, 0.5, colour, text, size=7.5)


def lane_groups(lanes=16, slots=16, d=64, warps=4):
    """Which lane of which warp reads which 16 bytes of a page of keys, where `lanes` lanes hold one token."""
    tokens = 32 // lanes
    owners = [slot // tokens % warps for slot in range(slots)]
    labels = [[slot % tokens * lanes + part if slot < tokens else "" for part in range(d // 4)]
              for slot in range(slots)]
    told = [f"Warp {n}: slots {', '.join(str(slot) for slot in range(slots) if owners[slot] == n)}."
            for n in range(warps)]
    figures.tiles([[owner] * (d // 4) for owner in owners], labels=labels, solid=True,
                  names={n: f"warp {n}" for n in range(warps)}, row_label="slot of the page",
                  column_label="16 bytes of the key",
                  alt=f"A page of {slots} keys of {d} floats, 16 bytes to a cell. {' '.join(told)} In "
                      f"warp 0, lanes 0 to {lanes - 1} read the first.",
                  caption=f"Rung 3 reads a page: {lanes} lanes hold one token, so a warp has {tokens} at a "
                          "time (numbers: the lanes of warp 0). Both are on one page: one look into the "
                          "table.")


def ring(machines=4):
    """Which slice of the keys each machine has in each round of a ring, and what a causal mask leaves."""
    held = [[(machine - step) % machines for step in range(machines)] for machine in range(machines)]
    kinds = [[0 if part > machine else 1 if part == machine else 2 for part in row]
             for machine, row in enumerate(held)]
    figures.tiles(kinds, names={0: "nothing to do", 1: "half of the pairs", 2: "all pairs"}, empty=0,
                  labels=held, row_label="machine", column_label="round",
                  caption="The number is the slice of keys that a machine has in this round. Under a causal "
                          "mask a later slice than its own gives it nothing to do.")
