"""A bound on the memory that a comparison may take."""
import contextlib
import os
import sys
from pathlib import Path


@contextlib.contextmanager
def bounded_memory(limit: int):
    """An allocation beyond `limit` bytes more than now raises: a small answer may compare at great cost."""
    if sys.platform != "linux":
        yield
        return
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    wanted = mapped + limit if hard == resource.RLIM_INFINITY else min(mapped + limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
