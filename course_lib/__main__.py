"""`python -m course_lib COMMAND ...`: every command of the course (tools/commands.json), each in its own module.

A command is a function `(argv: list[str]) -> int | None` (its exit status), imported when asked for."""
import json
import sys
from importlib import import_module
from pathlib import Path

# name: ["module:function", "one line for the list of commands"]
COMMANDS = json.loads((Path(__file__).parent / "tools" / "commands.json").read_text(encoding="utf-8"))


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
