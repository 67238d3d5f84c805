"""`python -m course_lib COMMAND ...`: every command of the course, each in its own module.

A command is a function `(argv: list[str]) -> int | None` (its exit status), imported when asked for."""
import sys
from importlib import import_module

# name: ("module:function", "one line for the list of commands")
COMMANDS = {
    "lab": ("course_lib.tools.lab:main", "open JupyterLab on your own copies of the notebooks, in work/"),
    "run": ("course_lib.tools.notebooks:run", "re-execute notebooks in place: run [NOTEBOOK...]"),
    "lint": ("course_lib.tools.lint:main", "hold notebooks to the course's conventions: lint [NOTEBOOK...]"),
    "fresh": ("course_lib.tools.fresh:fresh", "lay a new copy of a chapter's notebook in work/: fresh 3"),
    "train": ("course_lib.language_model.train_command:train_command",
              "train the language model: train --out FILE ..."),
    "attention-study": ("course_lib.studies.attention:study_command",
                        "the small model without positions: data/attention_study.json"),
    "heads-study": ("course_lib.studies.heads:study_command",
                    "one head against many at equal width: data/heads_study.json"),
    "rope-study": ("course_lib.studies.rope:study_command",
                   "the small model beyond its trained length: data/rope_study.json"),
    "gqa-study": ("course_lib.studies.gqa:study_command", "fewer key and value heads: data/gqa_study.json"),
    "linear-study": ("course_lib.studies.linear_attention:study_command",
                     "the small model with linear attention: data/linear_study.json"),
    "sparse-study": ("course_lib.studies.sparse_attention:study_command",
                     "windows and sinks in the small model: data/sparse_study.json"),
    "request-trace": ("course_lib.paged_attention.trace:trace_command",
                      "requests like those of a chat: data/request_trace.json"),
    "attention-table": ("course_lib.studies.attention_table:table_command",
                        "every attention in the small model: data/attention_table.json"),
    "indexer-study": ("course_lib.studies.indexer:study_command",
                      "indexers distilled from dense attention: data/indexer_study.json"),
    "multi-token-study": ("course_lib.studies.multi_token:study_command",
                          "a head that drafts from the model's states: data/multi_token_study.json"),
    "field-guide": ("course_lib.studies.field_guide:main",
                    "chapter 11's layers beside the published ones: field-guide [FAMILY...]"),
    "chat": ("course_lib.field_guide.whole.chat:main", "talk to a model on your disk: chat FOLDER"),
    "whole-models": ("course_lib.studies.whole_models:main",
                     "whole models beside the published ones: whole-models [FAMILY...]"),
    "w2-study": ("course_lib.studies.w2_attention:study_command",
                 "the small model with W2 attention: data/w2_study.json"),
    "w2-audit": ("course_lib.studies.w2_audit:audit_command",
                 "W2 attention put to the test, about two hours: data/w2_audit.json"),
    "result": ("course_lib.studies.reference_loop:result_command",
               "our training loop beside a plain one: data/result.json"),
    "dates": ("course_lib.language_model.translator:dates_command",
              "train the translator of dates: data/dates.safetensors"),
    "clean": ("course_lib.tools.clean:clean", "empty the build cache"),
    "solve": ("course_lib.teaching.solve:main",
              "solved notebooks, executed, for instructors: solve [CHAPTER...] --out FOLDER"),
    "grade": ("course_lib.teaching.grade:main", "mark a folder of submissions: grade FOLDER --out RESULTS"),
    "exam": ("course_lib.teaching.exam.command:main",
             "an exam on a machine drawn for each student: exam out|mark"),
    "handout": ("course_lib.teaching.handout:main",
                "what a class gets, without solutions: handout CHAPTER --out DIR"),
    "export": ("course_lib.teaching.nbgrader_export:main",
               "a source tree for nbgrader: export nbgrader --out FOLDER"),
    "bench": ("laptop_cuda.bench:main", "how fast the engine builds and runs: bench engine"),
    "gpu-check": ("course_lib.gpu.check:main",
                  "every kernel on this machine's card against float64, and the tools that are there"),
    "gpu-first": ("course_lib.gpu.first:main", "the first hour on a card, step by step, within a time limit"),
    "gpu-registers": ("course_lib.gpu.registers:main",
                      "registers of every kernel instance, by nvcc: data/gpu/registers.txt"),
    "gpu-ladders": ("course_lib.gpu.ladders:main",
                    "registers, occupancy and bounds of the ladders: data/gpu/ladders.json"),
    "gpu-bench": ("course_lib.gpu.bench:main",
                  "time the kernels on this machine's card: data/gpu/<card>/bench.json"),
    "moving-picture": ("course_lib.tools.moving_picture:main",
                       "the README's picture that moves: docs/player.svg"),
    "book": ("course_lib.tools.book.build:main",
             "a static site from the committed notebooks: .build/book/html"),
    "doctor": ("course_lib.tools.doctor:main", "what this machine has, what is missing and how to get it"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items())
    return f"usage: python -m course_lib COMMAND ...\n\n{rows}\n"


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    name, *rest = argv
    if name not in COMMANDS:
        print(f"no command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module, function = COMMANDS[name][0].split(":")
    try:
        return getattr(import_module(module), function)(rest) or 0
    except KeyboardInterrupt as error:      # training says how to go on
        print(f"\n{error}" if str(error) else "\nstopped", file=sys.stderr)
        return 130
    except BrokenPipeError:     # the reader of our output went away, as `| head` does
        return 1
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("course_lib"):
            raise
        # Without a name: an extra, and the message says how to get it.
        print(f"{name}: {error}"
              + (", which the course needs: `python -m course_lib doctor` says how to get it. Is it the "
                 "course's own Python, .venv/bin/python?" if error.name else ""), file=sys.stderr)
        return 2
    except OSError as error:    # a folder that is not there or cannot be written, a full disk
        if error.filename is None:
            raise
        print(f"{name}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
