"""The walls around a student's code: the rights that a process gives up before it runs that.

Limits on time, memory, processes and files (setrlimit); another user, if this one is root; only the listed
folders to read (Landlock); no network and nothing that reaches into another process (seccomp). They cannot be
undone and are inherited. Standard library only (C by ctypes): the grader's child loads this alone."""
import ctypes
import errno
import os
import platform
import struct
import sys

try:
    import resource
except ImportError:                 # Windows: there are no walls to build, and `missing` says so
    resource = None

LIBC = ctypes.CDLL(None, use_errno=True) if resource else None
SPARE_UIDS = 2_000_100_000          # far above what any user database hands out


class WallError(OSError):
    """A wall that was asked for could not be built."""


def limit(seconds: int, memory: int, processes: int, file_bytes: int) -> None:
    """Processor time, address space on top of what is mapped now, processes of this user, size of a file."""
    def lower(what, value):
        _, hard = resource.getrlimit(what)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))

    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_CPU, seconds)
    lower(resource.RLIMIT_FSIZE, file_bytes)
    lower(resource.RLIMIT_NOFILE, 128)
    if sys.platform == "linux":
        lower(resource.RLIMIT_AS, _mapped() + memory)
        lower(resource.RLIMIT_NPROC, processes)
        lower(resource.RLIMIT_MSGQUEUE, 0)


def _mapped() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def tasks_of_user(uid: int) -> int:
    """How many threads the user runs: what RLIMIT_NPROC is compared with."""
    count = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:             # it has ended
            continue
    return count


CAP_DAC_READ_SEARCH = 2


def drop(uid: int, keep_search: bool) -> None:
    """Become an unprivileged user for good.

    `keep_search` keeps the one right to pass through folders that are closed to others (a Python below /root,
    say); what may be read is then up to Landlock alone, so keep it only together with Landlock."""
    PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, RAISE = 8, 24, 47, 2
    for cap in range(64):
        if not (keep_search and cap == CAP_DAC_READ_SEARCH):
            LIBC.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)
    LIBC.prctl(PR_SET_KEEPCAPS, 1 if keep_search else 0, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if keep_search:
        bit = 1 << CAP_DAC_READ_SEARCH
        header = struct.pack("=Ii", 0x20080522, 0)
        if LIBC.capset(header, struct.pack("=6I", bit, bit, bit, 0, 0, 0)):
            raise WallError(ctypes.get_errno(), "capset")
        LIBC.prctl(PR_CAP_AMBIENT, RAISE, CAP_DAC_READ_SEARCH, 0, 0)
    if os.getuid() != uid or os.geteuid() != uid:
        raise WallError(errno.EPERM, "still root")


# What may be read: Landlock.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = (1 << n for n in (0, 1, 2, 3, 14, 15))
ALL_ACCESS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
FILE_ACCESS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446        # the same on every architecture


def landlock_version() -> int:
    """0 where the kernel has no Landlock."""
    return max(0, LIBC.syscall(CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


def landlock(readable: list[str], listable: list[str], folder: str) -> int:
    """A ruleset (a file descriptor): read and run below `readable`, list `listable`, write in `folder`."""
    version = landlock_version()
    handled = ALL_ACCESS.get(version, (1 << 16) - 1)
    attributes = struct.pack("=QQQ", handled, 3, 3)      # TCP; abstract sockets and signals to outside
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = LIBC.syscall(CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        raise WallError(ctypes.get_errno(), "landlock_create_ruleset")
    rules = [(path, READ) for path in readable] + [(path, READ_DIR) for path in listable]
    rules += [(folder, (1 << 16) - 1), ("/dev/null", READ_FILE | WRITE_FILE)]
    rules += [(device, READ_FILE) for device in ("/dev/zero", "/dev/urandom", "/dev/random")]
    for path, access in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        access &= handled if os.path.isdir(path) else handled & FILE_ACCESS
        failed = LIBC.syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", access, fd), 0)
        os.close(fd)
        if failed:
            raise WallError(ctypes.get_errno(), f"landlock_add_rule {path}")
    return ruleset


def enforce(ruleset: int) -> None:
    """From here on the ruleset holds."""
    if LIBC.syscall(RESTRICT_SELF, ruleset, 0):
        raise WallError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def no_new_privileges() -> None:
    if LIBC.prctl(38, 1, 0, 0, 0):
        raise WallError(ctypes.get_errno(), "no_new_privs")


# What may be asked of the kernel: seccomp.
# (x86-64, arm64). First the network; then other processes; then shared memory, owners and attributes of
# files, which reach past a process; then what changes the machine.
DENIED = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "tkill": (200, 130), "setpriority": (141, 140),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "memfd_create": (319, 279), "chown": (92, 55), "fchown": (93, 55),
    "lchown": (94, 55), "fchownat": (260, 54), "utime": (132, 88), "utimes": (235, 88),
    "futimesat": (261, 88), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "memfd_secret": (447, 447), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116)}
# Answered with "done" only: the linker makes its file executable, and Landlock does not govern modes.
PRETENDED = {"chmod": (90, 52), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)}
OWN_ONLY = {"prlimit64": (302, 261)}                 # allowed with pid 0, that is for oneself
# allowed to oneself where Landlock does not scope signals
SIGNALS = {"kill": (62, 129), "tgkill": (234, 131)}
CLONE, CLONE3 = (56, 220), 435
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
NEW_NAMESPACES = 0x7E020000                           # every CLONE_NEW*


def has_seccomp() -> bool:
    """Whether this kernel takes a filter, on an architecture whose numbers are known."""
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return False
    # a null filter: EFAULT where filters exist, EINVAL where they do not
    return LIBC.prctl(22, 2, None, 0, 0) == -1 and ctypes.get_errno() == errno.EFAULT


def filter_calls(signals_scoped: bool) -> None:
    """Refuse the calls above with 'not permitted'; answer those of PRETENDED without carrying them out."""
    column, architecture = ARCHITECTURES[platform.machine()]
    refuse = (RETURN, 0, 0, ERROR | errno.EPERM)
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if column == 0:
        program += [(AT_LEAST, 0, 1, 0x40000000), refuse]                 # the x32 names of the same calls
    for numbers in DENIED.values():
        program += [(EQUAL, 0, 1, numbers[column]), refuse]
    for numbers in PRETENDED.values():
        program += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, ERROR)]
    # its flags cannot be seen: use clone
    program += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    program += [(EQUAL, 0, 3, CLONE[column]), (LOAD, 0, 0, 16), (ANY_BIT, 0, 1, NEW_NAMESPACES), refuse]
    program += [(LOAD, 0, 0, 0)]
    allowed_first = {n[column]: 0 for n in OWN_ONLY.values()}
    if not signals_scoped:
        allowed_first.update({n[column]: os.getpid() for n in SIGNALS.values()})
    for number, first in allowed_first.items():
        program += [(EQUAL, 0, 4, number), (LOAD, 0, 0, 16), (EQUAL, 1, 0, first), refuse, (LOAD, 0, 0, 0)]
    program.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(code))
    if LIBC.prctl(22, 2, filter_, 0, 0):
        raise WallError(ctypes.get_errno(), "seccomp")


def missing() -> list[str]:
    """The walls that this machine cannot build, in words."""
    gone = []
    if not hasattr(os, "fork"):
        return ["anything at all (marking needs Linux; on Windows use WSL: --no-sandbox will not do)"]
    if sys.platform != "linux":
        return ["reading only what is allowed (Landlock is Linux)", "no network (seccomp is Linux)",
                "a limit on memory and processes"]
    if not landlock_version():
        gone.append("reading only what is allowed (this kernel has no Landlock, or it is switched off)")
    if not has_seccomp():
        gone.append("no network, nothing that reaches other processes (no seccomp filters here)")
    return gone
