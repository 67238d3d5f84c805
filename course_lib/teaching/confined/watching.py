"""What a job's processes take, read from /proc by the process above: memory, files, idle time."""
import os
import stat
import sys

MOST_FILES = 2000


def taken_too_much(job: dict) -> str | None:
    """"memory" or "disk" if the job's processes together are over its limit."""
    if sys.platform != "linux":
        return None
    living = descendants()
    if memory_of(living) > job["resident"]:
        return "memory"
    size, count = size_of(job["folder"])
    return "disk" if count > MOST_FILES or size + unlinked_bytes(living) > job["disk_bytes"] else None


def descendants() -> set[int]:
    """The living processes below this one. A zombie by its first thread may live by its others."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            state, parent, threads = fields[0], int(fields[1]), int(fields[17])
            parents[int(name)] = (parent, state not in "ZX" or threads > 1)
    found, front = set(), {os.getpid()}
    while front:
        front = {p for p, (parent, _) in parents.items() if parent in front}
        found |= front
    return {p for p in found if parents[p][1]}


def memory_of(processes: set[int]) -> int:
    """Bytes of memory that the processes hold and do not share with us."""
    total = 0
    for pid in processes:
        try:
            with open(f"/proc/{_live_thread(pid)}/status") as status:
                total += (sum(int(line.split()[1]) for line in status
                              if line.startswith(("RssAnon", "RssShmem"))) << 10)
        except OSError:
            continue
    return total


def _live_thread(pid: int) -> str:
    """A path below /proc with the process's memory: the first thread has none once it has ended."""
    try:
        threads = [int(t) for t in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        threads = []
    return f"{pid}/task/{max(threads, default=pid)}"


def size_of(folder: str) -> tuple[int, int]:
    """(bytes, files) below a folder, counted until there are too many."""
    size = count = 0
    waiting = [folder]
    while waiting and count <= MOST_FILES:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if count > MOST_FILES:
                        break
        except OSError:
            continue
    return size, count


def unlinked_bytes(processes: set[int]) -> int:
    """Bytes of files that have no name any more and are held open."""
    held = {}
    for pid in processes:
        place = f"/proc/{_live_thread(pid)}/fd"
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            try:
                about = os.stat(f"{place}/{name}")
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                held[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(held.values())


def note_waiting(waited: dict[int, float]) -> None:
    """Keep for each process below this one the seconds that it was ready to run and had no processor."""
    for pid in descendants() if sys.platform == "linux" else ():
        try:
            with open(f"/proc/{pid}/schedstat") as file:
                waited[pid] = int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            continue
