"""Ctrl-C between steps of training, not in the middle of one."""
import signal
import threading
import time


class Interrupt:
    """A context in which Ctrl-C only sets `asked`: the step is finished. A second one stops at once.

    (An earlier one is the same Ctrl-C: the terminal sends it to all processes, torchrun once more.)"""

    def __enter__(self):
        self.asked, self.before, self.at = False, None, 0.0
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_):
        if self.asked and time.monotonic() > self.at + 1:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self.at = True, time.monotonic()

    def __exit__(self, *_):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
