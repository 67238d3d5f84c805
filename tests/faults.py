"""Planted faults: does the suite still see what it is there to see? Not collected by pytest; run by hand.

    python tests/faults.py [NAME...] [--list] [--jobs N] [--tree FOLDER]

An entry is a name, a file, a text that occurs in it exactly once, what replaces it (the fault), and the tests
that must turn red: arguments of pytest, files from tests/ or from the root on, `-m slow` where only the slow
suite sees it. The tree is copied, once per job, beside a build cache that is kept; each selection must be
green without a fault.
What does not apply (a text that moved, a test of another name, a missing tool) is a failure: who renames a
test or a file renames it here too. All of it takes half an hour of one core."""
import argparse
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIME, NOT_RUN = 900, "does not apply"        # seconds for one selection; and a result
Fault = namedtuple("Fault", "name file old new tests room")
FAULTS = {
    "kernels": [
        ("weights shrink the wrong way", "kernels/attention.cu", "a.total * expf(a.largest - shift)",
         "a.total * expf(shift - a.largest)", "chapters/test_attention.py -k online"),
        ("rotation backwards", "kernels/rope.cu", "pair[0] = a * c - b * s;", "pair[0] = a * c + b * s;",
         "chapters/test_rope.py -k every_rung"),
        ("a tile past the last key", "kernels/gqa.cu", "int rows = min(TILE, visible - start);",
         "int rows = TILE;", "tools/test_gpu_cases.py -k 'on_the_engine and attend_by'"),
        ("a chunk forgets what was before", "kernels/linear_attention.cu",
         "before[(head * n_chunks + j) * size + e] = sum;",
         "before[(head * n_chunks + j) * size + e] = 0.0f;",
         "chapters/test_linear_attention.py -k 'modules or chunks'"),
        ("keys past the end", "kernels/sparse_attention.cu", "if (c < keys && allowed(r, c)) {",
         "if (allowed(r, c)) {", "tools/test_gpu_cases.py -k 'on_the_engine and dense_masked'"),
        ("the sum is not rescaled", "kernels/flash_attention.cu", "l = shrink * l + p;", "l = l + p;",
         "chapters/test_flash_attention.py -k every_rung"),
        ("the sum of a group is not rescaled", "kernels/kv_cache.cu", "sum[g] = sum[g] * shrink + weight;",
         "sum[g] = sum[g] + weight;", "tools/test_gpu_cases.py -k 'on_the_engine and decode_part'"),
        ("the wrong slot of a page", "kernels/paged_attention.cu", "const int token = base + lane / LANES;",
         "const int token = base + lane % LANES;", "tools/test_gpu_cases.py -k 'on_the_engine and paged_decode_warps'"),
        ("widths do not count", "kernels/w2_attention.cu", "sum += mean * mean + width * width;",
         "sum += mean * mean;", "tools/test_gpu_cases.py -k 'on_the_engine and w2_score'"),
        ("a gradient keeps its row sum", "kernels/flash_attention/tensor_core_backward.cu",
         "(dp[m][n][i] - of_query)", "dp[m][n][i]",
         "tools/test_gpu_cases.py -k 'on_the_engine and backward_tensor_core'"),
        ("a header quotes what is not counted", "kernels/flash_attention/tensor_core_backward.cu",
         "backward_tensor_core, keys        266,240", "backward_tensor_core, keys        265,240",
         "chapters/test_flash_attention.py -m slow -k header_of_a_backward"),
        ("a host function in a kernel", "kernels/rope.cu", "__device__ __forceinline__ Pair locate(",
         "inline Pair locate(", "tools/test_gpu_cases.py -m slow -k 'nvcc and rope'"),
    ],
    "mutants": [
        ("a changed kernel is not a changed one", "tests/changed_kernels.py", "return n == chosen;",
         "return false;", "chapters/test_changed_kernels.py -m slow -k 'gqa and rows'"),
    ],
    "chapters": [
        ("the triangle is shifted", "course_lib/attention/functions.py", ".tril(n_k - n_q)", ".tril(0)",
         "chapters/test_attention.py -k causal"),
        ("the delta is not taken", "course_lib/linear_attention/delta.py",
         "u = beta[:, :, t, None] * (u - (k[:, :, t, None, :] @ s)[:, :, 0])", "u = beta[:, :, t, None] * u",
         "chapters/test_linear_attention.py -k delta"),
        ("a shared page is written", "course_lib/paged_attention/blocks.py",
         "elif self.references[table.blocks[-1]] > 1:", "elif self.references[table.blocks[-1]] > 2:",
         "chapters/test_solutions.py -k copy_on_write"),
        ("a wrong argument passes", "course_lib/checks/attention.py",
         "if 0 in (q.shape[1], k.shape[1]) or q.shape[1] % k.shape[1]:", "if 0 in (q.shape[1], k.shape[1]):",
         "chapters/test_gqa.py -k bad_input"),
    ],
    "studies": [
        ("a stored loss is another", "data/growing_table.json", '"loss": 2.4895', '"loss": 2.4795',
         "tools/test_growing_table.py -k means"),
    ],
    "exercises": [
        ("wrong work passes", "course_lib/exercises/judging/compare.py", "atol + rtol * w.abs())))",
         "atol + 9 + rtol * w.abs())))", "exercises/test_exercises.py -k 'one_wrong and 3.4'"),
        ("a misconception has no name", "course_lib/exercises/judging/recognise.py",
         "return EQUAL * (compare(a.value, b.value, case) is None)", "return 0",
         "exercises/test_exercises.py -k 'every_misconception and 3.4'"),
        ("a notebook that is not solved", "course_lib/teaching/solve.py", "return exercise.solution\n",
         "return exercise.stub\n", "exercises/test_exercises.py -m slow -k 'solved_passes and start_here'"),
    ],
    "teaching": [
        ("a reply is unpickled", "course_lib/exercises/running/wire.py", '        raise WireError("not a message")\n',
         '        return __import__("pickle").loads(message)\n', "exercises/test_wire.py -k forged"),
        ("a wall without its net", "course_lib/teaching/confined/walls.py",
         '"socket": (41, 198), "connect": (42, 203),', "", "teaching/test_sandbox.py -k every_wall"),
        ("a kernel may call what it likes", "laptop_cuda/only_kernels.py",
         "if not COMPILERS.fullmatch(symbol) and not mathematics:", "if False:",
         "engine/test_only_kernels.py -m slow -k more_than"),
        ("copies are not flagged", "course_lib/teaching/grade.py", "    flag_copies(marks)\n", "",
         "teaching/test_grading.py -k equal_code"),
        ("a mark of an edited cell is kept", "course_lib/teaching/marks/store.py",
         "marking.fingerprint(exercise), self.seed, source]", "marking.fingerprint(exercise), self.seed]",
         "teaching/test_grading.py -m slow -k second_run"),
        ("a handout with its solutions", "course_lib/teaching/handouts/declarations.py",
         'f"    {exercise.id!r}: ', "f\"    '''{exercise.solution}''' and {exercise.id!r}: ",
         "teaching/test_handout.py -m slow -k 'a_handout and start_here'"),
        ("an exam that blames no 32 lanes", "course_lib/teaching/exam/mark.py",
         'return right(32) and not right(machine["warp_size"])', "return False",
         "teaching/test_exam.py -m slow -k 32_lanes"),
        ("nbgrader gets no solution", "course_lib/teaching/nbgrader_export.py",
         "### BEGIN SOLUTION\\n{solution}", "### BEGIN SOLUTION\\n{stub}",
         "teaching/test_handout.py -k export_holds"),
    ],
    "tools": [
        ("an arrow upward", "course_lib/attention/functions.py", "import math\n",
         "import math\nfrom course_lib import gqa  # noqa: F401\n", "tools/test_house.py -k arrows"),
        ("a number that no cell prints", "course_lib/tools/lint/text.py",
         'if not printed(number.replace(",", ""), known):', "if False:",
         "tools/test_notebooks_lint.py -k number"),
        ("any output will do", "course_lib/tools/nbval_cells.py", "        return same\n",
         "        return True\n", "tools/test_nbval_plugin.py -k must_not_pass"),
        ("an exercise's output is compared", "course_lib/tools/nbval_cells.py",
         'self.options["check"] = False\n\n', "pass\n\n",
         "tools/test_nbval_plugin.py -m slow -k strict_leaves"),
        ("cells are dealt out", "course_lib/tools/nbval_plugin.py", 'config.option.dist = "loadfile"',
         'config.option.dist = "load"', "tools/test_nbval_plugin.py -m slow -k serial"),
        ("a browser in a terminal", "course_lib/tools/lab.py", 'made.append("--no-browser")', "pass",
         "tools/test_commands.py -k without_a_browser"),
        ("no compiler, no word", "course_lib/tools/doctor.py", 'Finding("C++ compiler", path is not None,',
         'Finding("C++ compiler", True,', "tools/test_commands.py -k doctor_without_a_compiler"),
        ("a page that is not there", "README.md", "(docs/marking.md)", "(docs/marks.md)",
         "tools/test_readme.py -k links"),
        ("a link into the repository", "course_lib/tools/book/texts.py",
         "text = REPOSITORY_LINK.sub(link, text)", "text = text", "tools/test_book.py -k links"),
        ("a stale output", "notebooks/03_gqa.ipynb", "heads   116 users", "heads   117 users",
         "--nbval notebooks/03_gqa.ipynb"),
    ],
    "packaging": [
        ("a wheel without its headers", "laptop_cuda/pyproject.toml",
         'laptop_cuda = ["include/**", "runtime/**",', 'laptop_cuda = ["runtime/**",',
         "engine/test_wheel.py -m slow -k platform"),
    ],
    "gpu": [
        ("a kernel without a case", "course_lib/gpu/cases/gqa.py", '    rung(3, "attend_by_group"),\n', "",
         "tools/test_gpu_cases.py -k has_a_case"),
        ("a case with the wrong answer", "course_lib/gpu/case.py", ".tril(s.shape[-1] - s.shape[-2])",
         ".tril(0)", "tools/test_gpu_cases.py -k 'on_the_engine and attend_by'"),
        ("an instance without its registers", "data/gpu/registers.txt", "  softmax_warp   ",
         "  softmax_wrap   ", "tools/test_gpu_first.py -m slow -k table_of_registers"),
    ],
    "pictures": [
        ("words of another count", "course_lib/explore/banks.py",
         "{passes(load.wavefronts)}, {load.excess} of", "{passes(load.excess)}, {load.excess} of",
         "tools/test_explore.py -k banks"),
        ("the lowest is the highest", "course_lib/figures/charts.py", '("lowest", int(ys.argmin()))',
         '("lowest", int(ys.argmax()))', "tools/test_figures.py -k curve"),
        ("the browser says more bytes", "laptop_cuda/browser/trace.js",
         "const moved = trace.machine.sector_bytes * step.sectors;", "const moved = 33 * step.sectors;",
         "engine/test_player.py -k browser_says"),
        ("a control that asks nothing", "course_lib/explore/frame/explore.js",
         "    source.ask({...state});\n", "", "tools/test_explore_in_browser.py -m slow -k nothing_is_from_elsewhere"),
    ],
    "engine text": [
        ("a student's line is another", "laptop_cuda/text/diagnostics.py", "found.append((line, message))\n",
         "found.append((line + 1, message))\n", "engine/test_cuda_build.py -k students_line"),
        ("a race without its advice", "laptop_cuda/errors/memory.py",
         "if self.place == self.other_place and UPDATE.search(text)", "if False and UPDATE.search(text)",
         "engine/test_bugs.py -k cause"),
        ("a loop that waits runs as a loop", "laptop_cuda/regions/check.py",
         'if empty or any(t.text.startswith("atomic") for t in tokens[made.first:end]):', "if empty:",
         "engine/test_regions.py -k 'differently or waits'"),
        ("lines by another table", "laptop_cuda/toolchain/line_table.py",
         "line += base + (code - first) % span", "line += 1 + base + (code - first) % span",
         "engine/test_line_table.py -m slow"),
    ],
    "runtime": [
        ("a sector too many", "laptop_cuda/runtime/runtime_trace.cpp",
         "last = sector_of(r.address[i] + r.size - 1);", "last = sector_of(r.address[i] + r.size);",
         "engine/test_counts.py -k coalesced"),
        ("one past the end", "laptop_cuda/runtime/runtime_settled.h",
         "address >= s.views[0].low && address + size <= s.views[0].high",
         "address >= s.views[0].low && address <= s.views[0].high",
         "engine/test_bugs.py -k the_bug_is_caught"),
        ("a race between warps", "laptop_cuda/runtime/runtime_sanitize.cpp",
         "if (other == t->index) return false;", "if (other / 32 != t->index / 32) return false;",
         "engine/test_bugs.py -k race"),
        ("settled beyond a meeting", "laptop_cuda/runtime/runtime_sanitize.cpp",
         "unsigned lanes) {\n    unsettle();\n", "unsigned lanes) {\n",
         "engine/test_sanitize_settled.py -m slow"),
        ("a copy in flight is there", "laptop_cuda/runtime/runtime_phases.cpp",
         "    t->warp->block->in_flight.push_back(", "    if (false) t->warp->block->in_flight.push_back(",
         "engine/test_ptx.py -k before_its_wait"),
        ("fibers of other processors", "laptop_cuda/runtime/runtime_fibers.cpp", "    sp[11] = (void*)body; ",
         "    sp[10] = (void*)body; ", "engine/test_portability.py -m slow -k arm64"),
        ("a replay in another order", "laptop_cuda/replay/rows.py", "size, value(after, size, dtype),",
         "size, value(before, size, dtype),", "engine/test_replay.py -k event_names"),
        ("many writers are one", "laptop_cuda/why/__init__.py", "len(writes), suspects", "1, suspects",
         "engine/test_why.py -k many"),
        ("an executed line twice", "laptop_cuda/report/executed.py", "before.warps + most.warps,",
         "before.warps + 2 * most.warps,", "engine/test_inspect.py -k executions_per_line"),
    ],
    "headers": [
        ("a subnormal half", "laptop_cuda/include/soft_float.h", "float(rest) * 0x1p-24f)",
         "float(rest) * 0x1p-25f)", "engine/test_half.py -m slow"),
        ("a direction loses a bit", "laptop_cuda/include/directed_rounding.h", "(x >> 1 | (x & 1)))",
         "(x >> 1))", "engine/test_directed_rounding.py -m slow -k conversions"),
        ("the largest fp8", "laptop_cuda/include/cuda_fp8.h", "return {3, 7, 4, -9, 448.0,",
         "return {3, 7, 4, -9, 480.0,", "engine/test_fp8.py -k nearest"),
        ("a scan over two keys", "laptop_cuda/programs/include/thrust/laptop_by_key.h",
         "        if (!equal(key, *a)) total = first;\n", "",
         "laptop_cuda/programs/tests/test_thrust_algorithms.py -k by_key"),
        ("a sort of negative keys", "laptop_cuda/programs/include/cub/util_type.cuh",
         "bits & sign ? ~bits & all :", "bits & sign ? bits :",
         "laptop_cuda/programs/tests/test_cub_block_sort.py -m slow -k stable"),
        ("a mode of prmt", "laptop_cuda/ptx/integers.py", '"rc8", "ecl",', '"ecl", "rc8",',
         "engine/test_ptx_reference.py -m slow -k 32"),
    ],
    "programs": [
        ("an array without its name", "laptop_cuda/programs/include/cuda_runtime_api.h",
         "*p = bytes ? device_malloc(bytes, name,", '*p = bytes ? device_malloc(bytes, "",',
         "laptop_cuda/programs/tests/test_program.py -k array_by_its_variable"),
        ("a copy that fails in silence", "laptop_cuda/programs/include/cuda_runtime_api.h",
         'if (site) refused_call("cudaMemcpy", why, site);', "",
         "laptop_cuda/programs/tests/test_misuse.py -k wrong_is_found"),
    ],
    "judge": [
        ("a wrong result is right", "laptop_cuda/judge/child.py",
         'return {"verdict": "wrong" if wrong else "right",', 'return {"verdict": "right",',
         "laptop_cuda/judge/tests/test_judge.py -k what_is_wrong"),
        ("what nobody wrote is zero", "laptop_cuda/judge/child.py", "missing = case.defined[name] & ~written",
         "missing = case.defined[name] & False & ~written",
         "laptop_cuda/judge/tests/test_judge_bugs.py -m slow -k bug_is_named"),
    ],
}
EVERY = [Fault(*entry, room) for room, entries in FAULTS.items() for entry in entries]


def seconds() -> float:
    """Of processors, for the tests that have ended; with several jobs those of all of them."""
    return os.times().children_user + os.times().children_system


class Tree:
    """A copy of the tree in which one fault at a time is planted."""

    def __init__(self, tree: Path, number: int):
        self.tree = tree
        self.root = Path(tempfile.gettempdir()) / "course-faults" / tree.name / str(number)
        listed = ["git", "ls-files", "-co", "--exclude-standard"]
        names = subprocess.check_output(listed, cwd=tree, text=True).splitlines()
        files = {name for name in names if (tree / name).is_file()}
        for path in list(self.root.rglob("*")):         # builds stay; what another state of the tree had, not
            name = path.relative_to(self.root)
            if path.is_file() and name.parts[0] != ".build" and name.as_posix() not in files:
                path.unlink()
        for name in files:
            self.restore(name)

    def restore(self, name: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.tree / name, self.root / name)

    def test(self, selection: str) -> tuple[str, str]:
        """("green", "red", "late" or NOT_RUN, what pytest said)."""
        words = ["tests/" * (self.root / "tests" / word).is_file() + word for word in shlex.split(selection)]
        with tempfile.TemporaryFile("w+") as said:
            run = subprocess.Popen([sys.executable, "-m", "pytest", "-xqp", "no:cacheprovider", *words],
                                   cwd=self.root, stdout=said, stderr=said, start_new_session=True,
                                   env=os.environ | {"PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1"})
            try:
                status = run.wait(TIME)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                status = run.wait()
            said.seek(0)
            text = said.read()
        passed = status == 0 and " passed" in text
        return "late" if status < 0 else "green" if passed else "red" if status in (1, 2) else NOT_RUN, text

    def plant(self, fault: Fault, green: dict[str, tuple[str, str]]) -> tuple[str, str]:
        path = self.root / fault.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(fault.old) != 1:
            return NOT_RUN, f"{fault.file} has the text {text.count(fault.old)} times"
        if fault.tests not in green:
            green[fault.tests] = self.test(fault.tests)
        if green[fault.tests][0] != "green":
            return NOT_RUN, f"without the fault the tests are {': '.join(green[fault.tests])}"
        try:
            path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
            result, said = self.test(fault.tests)
        finally:
            self.restore(fault.file)
        return {"red": "caught", "green": "NOT CAUGHT"}.get(result, result), said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of `room: name`; none: all")
    parser.add_argument("--list", action="store_true", help="print the list and run nothing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1])
    args = parser.parse_args()
    chosen = [f for f in EVERY if any(n in f"{f.room}: {f.name}" for n in args.names or [""])]
    if args.list:
        print(*(f"{f.room}: {f.name}\n    {f.file}\n    {f.tests}" for f in chosen), sep="\n")
        return 0
    trees, green, missed = queue.SimpleQueue(), {}, []
    for number in range(args.jobs):
        trees.put(Tree(args.tree.resolve(), number))

    def one(fault: Fault) -> None:
        tree, begin = trees.get(), seconds()
        result, said = tree.plant(fault, green)
        trees.put(tree)
        print(f"{result:14} {seconds() - begin:6.0f} s  {fault.room}: {fault.name}", flush=True)
        if result != "caught":
            missed.append(f"{result}: {fault.room}: {fault.name}")
            print("    " + said[-1500:].replace("\n", "\n    "), flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, chosen))
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught", *missed, sep="\n")
    return bool(missed or not chosen)


if __name__ == "__main__":
    sys.exit(main())
