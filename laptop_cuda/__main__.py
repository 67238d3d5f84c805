"""`python -m laptop_cuda COMMAND`: the engine as a tool.

    inspect [--arch sm_80,sm_90] [--kernel "name<64>"] [--block N] FILE.cu
                             registers, occupancy and machine code of its kernels; needs nvcc, no card
    readings FOLDER          published kernels, from a checkout, counted beside what was read on a card"""
import signal
import sys

from .build import CompileError, NoCompiler
from .packs import command, commands


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["inspect"]:
            from .inside.inspect_command import main as inspect
            return inspect(words[1:])
        if words[:1] == ["readings"]:
            from .readings import main as readings
            return readings(words[1:])
        if found := words and command(words[0]):
            return found.main(words[1:])
        print(__doc__ + "".join(f"\n    {name} {said}" for name, said in commands().items()))
        return 0 if words[:1] in (["--help"], ["-h"], []) else 2
    except OSError as error:
        said = f"{error.strerror}: {error.filename}" if error.filename else error
        print(f"laptop_cuda: {said}", file=sys.stderr)
        return 2
    except (CompileError, NoCompiler, ValueError) as error:
        print(f"laptop_cuda: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("laptop_cuda: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))      # which ends the program too
    sys.exit(main())
