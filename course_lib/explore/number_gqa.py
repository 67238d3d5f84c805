"""One weight of grouped-query attention, followed to its sectors (chapter 3)."""
from course_lib.explore.followed.picture import FollowNumber
from course_lib.gqa import gqa_kernel


class NumberOfGroup(FollowNumber):
    title = "Follow one number: a block per group"
    caption = ("The weights that attend_by_group of kernels/gqa.cu made for one query: 6 heads in two groups of "
               "3, 20 keys. Heads 0 to 2 read the same rows of k.")
    q, k, at, seed, row_name = (6, 1), (2, 20), (4, 4), 3, "head"
    roles = ("its score goes to shared memory", "one thread per head makes e^(score − largest) of it")

    def launch(self):
        gqa_kernel(*self.tensors)
