"""What goes wrong with barriers and copies in flight, in words."""
import re

MISUSES = {
    "not initialised": ("uses {barrier} as an mbarrier, which no mbarrier.init has made one.",
                        "Usual cause: no __syncthreads() between the init and the others' first use, or the address of "
                        "another stage."),
    "not aligned": ("initialises an mbarrier at {barrier}, whose address is no multiple of 8.", ""),
    "count": ("initialises {barrier} for a count that is not 1 to 1,048,575.", ""),
    "initialised twice": ("initialises {barrier}, which is an mbarrier already.",
                          "Its memory may be used anew only after mbarrier.inval."),
    "one arrival too many": ("arrives at {barrier} more often than its phase expects.",
                             "Usual cause: every thread arrives where the count of mbarrier.init is for one elected "
                             "thread (or per warp); a 0; or no wait before the "
                             "next turn's arrival."),
    "phase not seen": ("arrives at {barrier} for a phase before anybody has seen that the phase before is over.",
                       "A wait for each phase must succeed somewhere before the next one's first arrival; usual cause: a "
                       "missing wait, or an `expect_tx` for the next copy that is issued too early."),
    "stale state": ("waits at {barrier} with the state of a phase that was over before the last one.",
                    "A state is good for its own phase and while the next one lasts: take it from this turn's arrive."),
    "too many bytes": ("makes {barrier} expect, or count, more than 1,048,575 bytes in one phase.", "")}
# of a cluster's barrier, and of its blocks' shared memory
CLUSTERS = {
    "arrives twice": ("arrives at its cluster's barrier again, without the wait in between.", ""),
    "waits without arrival": ("waits at its cluster's barrier without having arrived.", ""),
    "left block": ("uses {what}, and that block may have ended by then: nothing orders the one before the other.",
                   "No block may leave while others use its shared memory: cluster.sync() (barrier.cluster) before it ends "
                   "(CUDA programming guide, distributed shared memory)."),
    "block not known to run": ("uses {what}, and that block may not have begun.",
                               "cluster.sync() (barrier.cluster) before the first use of another block's shared memory "
                               "(CUDA programming guide, distributed shared memory).")}
TOO_EARLY = ("From wgmma.mma_async until wgmma.wait_group they are the product's; usual cause: a wait that leaves its group under "
             "way, or no wgmma.commit_group.")
TOGETHER = "Its four warps issue every wgmma.mma_async together, with the same descriptors."
# of a product of a warpgroup: what is wrong with it, and why that usually is
PRODUCTS = {
    "no fence": ("issues a product whose sums were written since the last one, with no wgmma.fence in between.",
                 "wgmma.fence stands before the first product, and again where sums (or A's registers) were changed."),
    "sums read": ("reads a sum of a product that it has not waited for.", TOO_EARLY),
    "sums written": ("writes a sum of a product that it has not waited for.", TOO_EARLY),
    "register written": ("changes a register of A of a product that it has not waited for.", TOO_EARLY),
    "not one product": ("has threads of one warpgroup that issue different products in its place.", TOGETHER),
    "not one descriptor": ("gives wgmma.mma_async another descriptor in one thread of the warpgroup than in the others.",
                           TOGETHER),
    "not one setmaxnreg": ("sets another number of registers in one thread of a warpgroup than in the others.", ""),
    "setmaxnreg by a part": ("sets registers in a part of a warpgroup.", "All its four warps execute the same setmaxnreg."),
    "no whole warpgroup": ("issues a product in threads that are no whole warpgroup: 128 of them, from a multiple of 128 on.",
                           "")}


def told(teller) -> tuple[str, str] | None:
    if teller.reason == "rule":
        return f"{teller.result.kernel} {teller.detail}", ""
    if teller.reason in CLUSTERS:
        what, cause = CLUSTERS[teller.reason]
        return f"{teller.result.kernel} {what.format(what=teller._element())}", cause
    if teller.kind == "deadlock" and teller.detail.startswith("cluster "):
        return (f"in {teller.result.kernel}, no thread can go on: {teller.detail[8:]} threads have arrived at their cluster's "
                "barrier, and others that have not ended do not come.",
                "Every thread of every block of the cluster arrives, or has ended; usual cause: cluster.sync() inside an `if`.")
    if teller.kind == "deadlock" and teller.detail.startswith("registers "):
        return (f"in {teller.result.kernel}, no thread can go on: setmaxnreg.inc waits for more registers than the {teller.detail[10:]} "
                "that the block has free, and nobody gives any back.",
                "Usual cause: a setmaxnreg.dec that is missing, or to too many. A thread begins with 65,536 by __launch_bounds__, in steps of 8.")
    if teller.kind == "misused barrier":
        what, cause = MISUSES[teller.reason]
        return f"{teller.result.kernel} {what.format(barrier=teller._element())}", cause
    if teller.reason in PRODUCTS:
        what, cause = PRODUCTS[teller.reason]
        return f"{teller.result.kernel} {what}", cause
    if teller.kind == "race":
        return _race(teller)
    return _deadlock(teller) if teller.detail.startswith("mbarrier ") else None


# accesses beside what is under way, each with its usual cause
RACES = {
    "to bulk copy": ("while a bulk copy into it is under way: what is there is not known.",
                     "no wait for the phase of the copy's mbarrier (or a wait for the other parity, which is over at once); where "
                     "a copy fills it again, no wait for the mbarrier by which its readers give it back; of a copy to global "
                     "memory, no cp.async.bulk.wait_group."),
    "to async store": ("while an st.async or red.async into it is under way: what is there is not known.",
                       "no wait for the phase of its mbarrier; where it is stored to again, nothing by which its readers give it back."),
    "refilled": ("before anybody has seen the end of the bulk copy that filled it: nobody can have read that.",
                 "no wait for the mbarrier by which its readers give the buffer back."),
    "from bulk copy": ("while a bulk copy may still read it.", "no cp.async.bulk.wait_group.read, or one by another thread than "
                       "the one that issued the copy: groups are per thread."),
    "from product": ("while a wgmma product may still read it.",
                     "no wgmma.wait_group for its group before the buffer is given back.")}


def _race(teller) -> tuple[str, str] | None:
    kernel, what = teller.result.kernel, teller._element()
    if teller.reason in RACES:
        while_, cause = RACES[teller.reason]
        return f"{kernel} {teller._verb()} {what} {while_}", f"Usual cause: {cause}"
    lines = teller.result.text(teller.place) + teller.result.text(teller.other_place)
    by = "a bulk copy" if "async.bulk" in lines.replace("_", ".") else "an asynchronous store"
    if teller.reason in ("", "inside a warp") and re.search("async.bulk|(st|red).async", lines):
        return (f"in {kernel}, {what} is written by {by} and touched by another thread, and nothing orders the two.",
                "Usual cause: " + RACES["to bulk copy"][1])
    if not teller.reason.startswith("no proxy fence"):
        return None
    by, does = "a bulk copy", "writes" if teller.e.who.action else "copies"
    if teller.reason.endswith("product"):
        by, does = "a product", "reads"
    return (f"{kernel} {does} {what} by {by}, and a thread wrote it by an ordinary store before, with no fence.proxy.async in "
            "between.",
            "Such an access goes another way to memory than a store, and a barrier alone does not order the two: fence.proxy.async "
            "must be executed after the store and before the other access, usually by the threads that stored, before their barrier.")


def _deadlock(teller) -> tuple[str, str]:
    memory, offset, phase, missing, expected, coming, owner = map(int, teller.detail.split()[1:])
    name = "an mbarrier"
    if memory >= 0:
        teller.memory, teller.e.offset, teller.e.size = teller.result.memories[memory], offset, 8
        teller.e.owner = owner
        name = teller._element()
    lacks = [f"{missing} of its {expected} arrivals missing"] * (missing > 0)
    lacks += [f"{coming:,} bytes still to come"] * (coming > 0)
    lacks += [f"{-coming:,} bytes more come than it was told to expect"] * (coming < 0)
    return (f"in {teller.result.kernel}, no thread can go on: phase {phase} (parity {phase % 2}) of {name} does not "
            f"end, with {' and '.join(lacks)}.",
            "Usual cause: an expect_tx of another number of bytes than the copies bring; a count of mbarrier.init, "
            "or of a cuda::barrier, that is not the number of those who arrive; or a wait for a buffer that nobody gives back.")
