"""One weight of plain attention, followed to its sectors (chapter 1)."""
from course_lib.attention import attention_kernel
from course_lib.explore.followed.picture import FollowNumber


class NumberOfAttention(FollowNumber):
    title = "Follow one number: three launches"
    caption = ("The weights that three launches of kernels/attention.cu made: 12 queries, the last of 20 "
               "tokens. In a notebook, choose another by the pointer or the arrow keys.")
    q, k, at, seed = (1, 12), (1, 20), (5, 10), 1
    roles = ("its score goes to global memory", "the next launch, softmax_on_chip, makes the weight of it")
    after = ""

    def launch(self):
        attention_kernel(*self.tensors, causal=True)
