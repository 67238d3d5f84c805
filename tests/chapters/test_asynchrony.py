"""Chapter 12: the ladder against chapter 6 and float64, what the sanitizer says of a kernel with one line less, the
swizzle against a copy, and the model of a pipeline."""
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import yaml

from changed_kernels import changed_kernels
from course_lib import asynchrony, cuda
from course_lib.asynchrony.kernels import RUNGS
from course_lib.asynchrony.pipeline import schedule
from course_lib.flash_attention import forward_kernel
from course_lib.gpu.case import BF16, attention, relative
from course_lib.gpu.results import FOLDER
from engine_kit import with_nvcc  # noqa: F401
from laptop_cuda import gpu
from planted_on_card import changed
from references import asked, excess, launches_of, wavefronts

ORDERS = ("late", "early", "reverse", "seeded")
COMPILE = (gpu.nvcc(), "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-cubin")


def inputs(n_q, n_k, d=64, heads=1, kv_heads=1):
    g = torch.Generator().manual_seed(n_q + n_k)
    return [torch.randn(1, h, n, d, generator=g).to(BF16) for h, n in
            ((heads, n_q), (kv_heads, n_k), (kv_heads, n_k))]


SIZES = [(1, 1), (31, 33), (63, 31), (33, 129), (100, 63), (129, 100)]


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_is_attention(rung):
    """Of float64, and of chapter 6's last rung but for the rounding of bfloat16."""
    for i, (n_q, n_k) in enumerate(SIZES):
        given = inputs(n_q, n_k, 64 if rung < 5 or i % 2 else 128, heads=2)
        got = asynchrony.asynchronous_attention(*given, causal=i % 2 == 0, rung=rung, stages=2 + i % 3)
        right = attention(*(x.double() for x in given), i % 2 == 0)
        before = forward_kernel(*given, i % 2 == 0, rung=7)
        for ours, want, theirs in zip(got, right, before):
            assert relative(ours, want) < 4e-3 and relative(ours, theirs) < 4e-3, (n_q, n_k)
    q, k, v = inputs(3, 5)               # nothing to attend to
    out, lse = asynchrony.asynchronous_attention(q, k[:, :, :0], v[:, :, :0], rung=rung)
    assert (out == 0).all() and (lse == -math.inf).all()


@pytest.mark.parametrize("order", ["late", "seeded"])
def test_a_bias_per_key_with_values_of_a_width_of_their_own(order):
    """Three groups, whose tiles begin at any byte of the bias, in a ring that is filled more than once."""
    q, k, v = inputs(200, 389, 128, heads=2)
    bias = torch.linspace(-3, 3, 389).view(1, 1, -1)
    with cuda.sanitize(order=order):
        got = asynchrony.asynchronous_attention(q, k, v[..., :64], True, 0.5, groups=3, key_bias=bias)
    right = attention(*(x.double() for x in (q, k, v[..., :64])), True, 0.5, bias.double())
    assert all(relative(ours, want) < 4e-3 for ours, want in zip(got, right))


@pytest.mark.parametrize("change, words", [
    (dict(zip("qkv", torch.zeros(3, 1, 1, 3, 64))), "q must be bfloat16"), (dict(rung=0), "rung must be 1, 2"),
    (dict(stages=5), "stages must be 2, 3 or 4"), (dict(causal=torch.ones(3, 3)), "causal must be"),
    (dict(zip("qk", inputs(3, 3, 32))), "q must have a width of 64"),
    (dict(v=inputs(3, 3, 32)[2]), "v must have the width of q, or 64 in 3 groups, 64; got 32"),
    (dict(key_bias=torch.zeros(3)), "groups must be 3 for a"), (dict(rung=8, groups=3), "groups must be 2 in rung")])
def test_bad_input_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        asynchrony.asynchronous_attention(**dict(zip("qkv", inputs(3, 3))) | change)


@pytest.mark.slow
def test_the_header_quotes_what_is_counted():
    """And rung 7 asks memory for what chapter 6's best rung asks."""
    text = (cuda.KERNELS / "asynchrony.cu").read_text()
    told = [(row[1], row[2]) for row in re.finditer(r"//   \S.*?  +([\d,]{7,}) +([\d,]+)", text)]
    given = inputs(256, 256)
    runs = [lambda rung=rung: asynchrony.asynchronous_attention(*given, rung=rung) for rung in RUNGS]
    counted = []
    for run in (*runs, *(lambda rung=rung: forward_kernel(*given, rung=rung) for rung in (6, 7))):
        launch, = launches_of(run)
        copied = launch.copies_in.bytes + launch.copies_out.bytes
        counted.append((f"{asked([launch]) + copied:,}", f"{wavefronts([launch]):,}"))
        assert excess([launch]) == 0
    assert counted == told and counted[-1][0] == counted[6][0]


def test_products_take_the_passes_of_shared_memory_that_a_card_counted():
    """An H200, 2026-11-26, Nsight Compute: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum."""
    for rung, passes in ((5, 768), (8, 1280)):
        launch, = launches_of(lambda: asynchrony.asynchronous_attention(*inputs(128, 128), rung=rung))
        assert launch.tensor_cores.wavefronts == passes


def test_a_timeline_shows_tiles_that_another_block_has_ordered():
    with cuda.profile() as report:
        asynchrony.asynchronous_attention(*inputs(129, 256), rung=8)
    landed = [row["bytes"] for row in report.launches[0].timeline(block=1).rows
              if (row["what"], row["barrier"], row["phase"]) == ("copy landed", "full[0]", 0)]
    assert landed == [64 * 64 * 2] * 2


def said(rung, order) -> tuple[str, str]:
    """What a checked run finds, in more tiles than a ring holds, or whether the result is wrong."""
    given = inputs(40, 200) if rung < 5 else inputs(40, 300, 128) if rung < 7 else inputs(140, 600, heads=2)
    try:
        with cuda.sanitize(order=order):
            out = asynchrony.asynchronous_attention(*given, causal=True, rung=rung)[0]
    except cuda.KernelError as problem:
        return problem.kind, problem.message
    right = attention(*(x.double() for x in given), True)[0]
    return ("", "") if relative(out, right) < 4e-3 else ("wrong", "")


FILES = yaml.safe_load((Path(__file__).parent / "changed_asynchrony.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("word", [word if word == "asynchrony" else pytest.param(word, marks=pytest.mark.slow)
                                  for word in FILES])
def test_a_kernel_with_another_line_is_an_error_of_its_kind(word, tmp_path, monkeypatch):
    changes, load, plain = FILES[word], cuda.load, word == "asynchrony"
    with cuda.sanitize():
        changed = changed_kernels(tmp_path, word, [change[1:3] for change in changes],
                                  *(() if plain else ("common/warpgroup.cuh",)))
    monkeypatch.setattr(cuda, "load", lambda name: changed if name == word else load(name))
    for number, (rung, before, _, kind, words) in enumerate(changes, 1):
        changed.globals["chosen"] = number
        found, message = said(rung, "late")
        assert found == kind and words in message, (before, found, message)
        assert not plain or said(rung, "early")[0], before
    changed.globals["chosen"] = 0
    assert all(said(rung, order) == ("", "") for rung in {change[0] for change in changes} for order in ORDERS)


@pytest.mark.slow
def test_the_compiler_spills_nothing_and_serializes_no_product(tmp_path, with_nvcc):
    for file, name, more, threads in (("flash3", "flash3_forward", "", 384), ("warpgroup", "overlapped", "", 160),
                                      ("flash3", "flash3_three_groups", ", true", 512)):
        found = cuda.inspect(cuda.load(f"asynchrony/{file}")[f"{name}<128{more}>"], "sm_90a", block=threads)
        assert found["registers"] <= 168 and found["spill_stores"] == found["stack"] == 0
        (tmp_path / "k.cu").write_text(f'#include "{cuda.KERNELS}/asynchrony/{file}.cu"\n'
                                       f"const void* instances[] = {{(void*){name}<64{more}>, (void*){name}<128{more}>}};\n")
        command = [*COMPILE, "-Xptxas=-v", tmp_path / "k.cu", "-o", tmp_path / "k"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "spill" in done.stderr and "serialized" not in done.stderr, done.stderr


PLANTED = json.loads((FOLDER / "nvidia_h200/planted.json").read_text())["rows"]


def test_the_changes_that_a_card_ran_are_these():
    assert [(row["rung"], row["old"], row["new"], row["engine"]) for row in PLANTED] == [
        tuple(change[:4]) for changes in FILES.values() for change in changes]
    assert all(row["wrong"] in (0, row["runs"]) for row in PLANTED if "runs" in row), "never in some runs alone"


@pytest.mark.slow
def test_the_compiler_waits_where_the_table_says_so(tmp_path, with_nvcc):
    def compiled(rung, old="", new=""):
        word, kernel, *_ = RUNGS[rung]
        shutil.rmtree(tmp_path / "kernels", ignore_errors=True)
        file = changed(word, old, new, tmp_path)
        with file.open("a") as end:
            end.write(f"\nconst void* instance = (void*){kernel}<128>;\n")
        done = subprocess.run([*COMPILE, file, "-o", tmp_path / "k"], capture_output=True, text=True, check=True)
        return sorted(set(re.findall(r"C75\d\d", done.stderr))), (tmp_path / "k").read_bytes()

    for row in PLANTED:
        if row["rung"] >= 5 and "compiler" in row:
            found, code = compiled(row["rung"], row["old"], row["new"])
            assert found == re.findall(r"C75\d\d", row["compiler"]), row["old"]
            same = row["compiler"] == "same machine code"
            assert found or same == (code == compiled(row["rung"])[1]), row["old"]


@pytest.mark.parametrize("mode", [0, 32, 64, 128])
def test_a_copy_puts_bytes_where_the_swizzle_says(mode):
    width = mode or 128
    rows = cuda.compile("""
#include "%s/common/asynchronous.cuh"
__global__ void as_stored(const __grid_constant__ CUtensorMap map, uint4* out, int bytes) {
    __shared__ alignas(1024) uint4 tile[256];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        asynchronous::init(&full, 1);
        asynchronous::expect(&full, bytes);
        asynchronous::load_tile((__nv_bfloat16*)tile, &map, 0, 0, 0, &full);
    }
    __syncthreads();
    asynchronous::wait(&full, 0);
    for (int i = threadIdx.x; i < bytes / 16; i += 32) out[i] = tile[i];
}
""" % cuda.KERNELS).as_stored
    x = torch.arange(16 * width // 2, dtype=torch.int16).view(1, 16, width // 2).view(BF16)
    out = torch.zeros(16 * width // 2, dtype=torch.int16)
    tile = cuda.tensor_map(x, (1, 16, width // 2), swizzle=mode or None)
    rows[1, 32](tile, out.view(torch.int32), 16 * width)
    places = [asynchrony.swizzled(row, byte, mode) // 2 for row in range(16) for byte in range(0, width, 2)]
    assert torch.equal(out[places], x.view(torch.int16).flatten())
    if mode in (0, 128):                 # eight rows in one group of banks, and in eight
        assert sorted(asynchrony.banks(range(8), 16, mode)) == (list(range(0, 32, 4)) if mode else [4] * 8)


@pytest.mark.parametrize("groups, overlapped", [(1, False), (1, True), (2, False), (2, True)])
@pytest.mark.parametrize("softmax", [1, 2, 5])
def test_a_schedule_makes_nothing_from_what_is_not_there(groups, overlapped, softmax):
    """No weights without their softmax, no softmax without its scores; one set of tensor cores."""
    at = {(part.group, part.kind, part.tile): part.begin
          for part in schedule(6, 1, softmax, groups, overlapped)}
    for (group, kind, tile), begin in at.items():
        if kind == "softmax":
            assert at[group, "scores", tile] + 1 <= begin and begin + softmax <= at[group, "values", tile]
    products = [begin for (_, kind, _), begin in at.items() if kind != "softmax"]
    assert len(set(products)) == len(products) == 12 * groups


@pytest.mark.parametrize("softmax, busy", [(1, 1), (2, 2 / 3), (3, 1 / 2)])
def test_an_overlapped_softmax_has_half_of_the_products_beside_it(softmax, busy):
    assert asynchrony.taking_turns(2000, 1, softmax, overlapped=True)[1] == pytest.approx(busy, abs=1e-3)
    assert asynchrony.taking_turns(2000, 1, softmax)[1] == pytest.approx(2 / (2 + softmax), abs=1e-3)
