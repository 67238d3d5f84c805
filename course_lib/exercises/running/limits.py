"""Time limits around a student's code, and its output kept aside."""
import contextlib
import io
import signal
import threading
import time
import warnings


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
    """Raise TimeIsUp in this thread after so many seconds of Python."""
    seconds = max(seconds, 0.01)
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        def ring(signum, frame):
            raise TimeIsUp
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
    target, done = ctypes.c_ulong(threading.get_ident()), threading.Event()

    def watch():
        if not done.wait(seconds):
            while not done.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(TimeIsUp))
                done.wait(0.2)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()
