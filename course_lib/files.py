"""Where the course is on this machine, and how a file is written whole."""
import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_whole(path: str | Path, content: str | bytes, durable: bool = False) -> None:
    """A reader of `path` sees the old content or the new, never a part, whenever this process ends.
    `durable`: after a power cut too, for what no command could make again; a busy disk takes seconds for it."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())       # before the rename, or a power cut could leave an empty file
        os.chmod(temporary, path.stat().st_mode if path.exists() else 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
