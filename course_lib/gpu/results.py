"""What was measured on a card: `data/gpu/<card>/bench.json`, written by `make gpu-bench`, and what was not."""
import json
import textwrap
from pathlib import Path

from course_lib.datasets import DATA

FOLDER = Path(DATA) / "gpu"

# The kernels of each chapter, in the order of its ladder.
KERNELS = {
    "attention": ("softmax_naive", "softmax_stable", "softmax_online", "softmax_warp", "softmax_block", "softmax_on_chip",
                  "softmax_half", "softmax_registers", "attention_scores", "attention_output"),
    "rope": ("rope_interleaved", "rope_half", "rope_interleaved_vec4", "rope_half_vec4", "rope_heads", "rope_append"),
    "gqa": ("repeat_kv", "attend_by_head", "attend_by_group"),
    "linear_attention": ("state_in_global", "state_in_shared", "chunk_states", "chunk_outputs", "delta_rule", "linear_walk",
                         "segment_prefix"),
    "sparse_attention": ("dense_masked", "block_sparse", "window_sink", "block_sparse_tensor_core", "window_tensor_core"),
    "flash_attention": ("scores", "softmax_rows", "weighted_sum", "flash_thread_per_row", "flash_shared", "flash_vectors",
                        "flash_registers", "flash_two_groups", "flash_tensor_core", "rowsum_do_o", "backward_keys", "backward_atomic",
                        "backward_queries", "row_deltas", "backward_tensor_core", "query_outer", "key_outer", "one_product", "read_tile"),
    "kv_cache": ("decode_part", "decode_part_int8", "merge_parts", "decode_tensor_core", "merge_splits"),
    "paged_attention": ("paged_decode_naive", "paged_decode_warps", "paged_merge", "paged_prefill", "copy_blocks", "paged_tensor_core"),
    "w2_attention": ("w2_score_matrix", "w2_flash", "flash_tensor_core", "w2_backward_keys", "w2_backward_queries"),
}


def gpu_table(word):
    """Print what was measured of the chapter's kernels, a row a kernel and card, and name those that were not.

    `ceiling` is the share of what the card could do at most (a device copy, or a large matrix product), `peer` the
    share of the speed of the named library call, both measured in the same run.
    """
    if word not in KERNELS:
        raise ValueError(f"word must be a chapter with kernels, one of {', '.join(KERNELS)}; got {word!r}")
    rows = [row for row in measured() if row["chapter"] == word]
    for row in rows:
        if row["kernel"] not in KERNELS[word]:
            raise ValueError(f"kernel must be one of the chapter's, {', '.join(KERNELS[word])}; got {row['kernel']!r}")
    if not rows:
        print("Not measured on a card yet: all kernels of this chapter.")
        return
    width = max(len(row["case"]) for row in rows)
    print(f"{'kernel':<22} {'case':<{width}} {'ceiling':>8} {'peer':>6}  {'named peer':<18} card, date")
    for row in sorted(rows, key=lambda row: (row["card"], KERNELS[word].index(row["kernel"]))):
        print(f"{row['kernel']:<22} {row['case']:<{width}} {percent(row['share_of_ceiling']):>8} "
              f"{percent(row['share_of_peer']):>6}  {row['peer'] or '-':<18} {row['card']}, {row['date']}")
    missing = [kernel for kernel in KERNELS[word] if kernel not in {row["kernel"] for row in rows}]
    if missing:
        print(textwrap.fill(f"Not measured on a card yet: {', '.join(missing)}.", 110))


def measured():
    """The rows of every card's file, each with its card and date."""
    for file in sorted(FOLDER.glob("*/bench.json")):
        bench = json.loads(file.read_text())
        for row in bench["rows"]:
            yield row | {"card": bench["card"], "date": bench["date"]}


def percent(share):
    return "-" if share is None else f"{100 * share:.0f} %"
