"""One weight of paged attention, followed through the page table to its sectors (chapter 8)."""
from course_lib.explore.followed.picture import WIDTH, FollowNumber
from course_lib.paged_attention import PagedKVCache, paged_attention_kernel

SIZE, GROUP = 4, 2                           # positions in a page, heads on a key head


class NumberInPages(FollowNumber):
    title = "Follow one number: through the page table"
    caption = ("The weights of paged_decode_naive of kernels/paged_attention.cu: 4 heads on 2 key heads, 18 "
               "positions in pages of 4. Another sequence grew in turns, so the pages are apart.")
    q, k, at, seed, row_name, key_name = (4, 1), (2, 18), (2, 10), 82, "head", "position"
    roles = ("its score goes to shared memory", "the same lane makes e^(score − largest) of it")

    def cache(self) -> PagedKVCache:
        cache = PagedKVCache(12, SIZE, 1, self.k[0], WIDTH)
        for name in "AB":
            cache.allocator.allocate(name, [0])
        for name in "AB" * (self.keys - 1):
            cache.append_slot(name)
        cache.write(0, cache.slots("A", 0, self.keys), *(x[0].transpose(0, 1) for x in self.tensors[1:]))
        return cache

    def made_of(self, row, key):
        page = self.cache().allocator.table("A").blocks[key // SIZE]
        return row, (page * self.k[0] + row // GROUP) * SIZE + key % SIZE

    def found(self, canvas, y, row, key):
        (load,), flat = self.numbers()[row][key].row("table"), self.made_of(row, key)[1]
        at, page = load["index"], load["value"]
        canvas.text(14, y, f"position {key}  →  page {at}, slot {key % SIZE}  →  table[{at}] = {page}  →  "
                    f"row {flat} of k", code=True)
        return (f"Position {key} is in page {key} // {SIZE} = {at} of the sequence, slot {key % SIZE}. Line "
                f"{load['line']} reads table[{at}] = {page}, a page of the pool; there head {row} reads key "
                f"head {row // GROUP}: row ({page} × {self.k[0]} + {row // GROUP}) × {SIZE} + {key % SIZE} = "
                f"{flat} of k.")

    def launch(self):
        cache = self.cache()
        paged_attention_kernel(self.tensors[0], cache, *cache.tables(["A"]), kernel="naive")
