"""One weight of FlashAttention, which is never stored as such, followed to its sectors (chapter 6)."""
from course_lib.explore.followed.picture import FollowNumber
from course_lib.flash_attention import forward_kernel


class NumberOfFlash(FollowNumber):
    title = "Follow one number: never written"
    caption = ("The weights of flash_shared of kernels/flash_attention.cu: 12 queries, the last of 40 tokens. "
               "No matrix of them exists: what is made of a score is in a tile until the next one.")
    q, k, at, seed = (1, 12), (1, 40), (11, 11), 6
    roles = ("its score was in a register only; e^(score − largest so far) goes to the tile",)
    kept = "e^(score − largest score so far)"
    after = "Tiles that follow may find a larger score and shrink it, and the sum of the row divides it"

    def launch(self):
        forward_kernel(*self.tensors, causal=True, rung=3)
