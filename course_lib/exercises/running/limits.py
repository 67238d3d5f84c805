"""Time limits around a student's code, and its output kept aside."""
import contextlib
import io
import signal
import sys
import threading
import time
import warnings

IMPORTS = 30                # seconds more that imports may take: parts of torch come from a slow disk for ten


class TimeIsUp(BaseException):
    """Raised in the student's code; not an Exception, so that a broad except does not swallow it."""


@contextlib.contextmanager
def guarded(deadline: float, printed: io.StringIO):
    """The student's code runs with a time limit and with its output kept aside."""
    with (contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed),
          time_limit(deadline - time.monotonic())):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise TimeIsUp in this thread after so many seconds of Python; an import is let come to its end before."""
    seconds, outside = max(seconds, 0.01), _imports(sys._getframe())
    last = time.monotonic() + seconds + IMPORTS

    def waits(frame):                                            # a module half imported would stay broken
        return _imports(frame) > outside and time.monotonic() < last
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        def ring(signum, frame):
            if not waits(frame):
                raise TimeIsUp
            signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
        before = signal.signal(signal.SIGALRM, ring)
        # again and again, for code that catches everything
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return
    import ctypes                                                # another thread, or no such signal (Windows)
    number, done = threading.get_ident(), threading.Event()

    def watch():
        while not done.wait(seconds) and waits(sys._current_frames().get(number)):
            pass
        while not done.is_set():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(number), ctypes.py_object(TimeIsUp))
            done.wait(0.2)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _imports(frame) -> int:
    """How many modules are being imported where this frame runs."""
    count = 0
    while frame is not None:
        count += (frame.f_code.co_filename, frame.f_code.co_name) == ("<frozen importlib._bootstrap>", "_load_unlocked")
        frame = frame.f_back
    return count
