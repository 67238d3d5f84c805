"""Deadlocks, timeouts and unknown names in words: one method per kind whose words have gaps of their own."""
import re

from .facts import Facts, spans


class LaunchErrors(Facts):
    def _deadlock(self):
        lanes = ""
        if missing := re.search(r"mask (0x\w+), missing lanes (0x\w+)", self.detail):
            numbers = [i for i in range(32) if int(missing[2], 16) >> i & 1]
            plural = "s" * (len(numbers) > 1)
            lanes = f": lanes wait for lane{plural} {spans(numbers)}, named in their mask {missing[1]}"
        return self.said(lanes=lanes)

    def _timeout(self):
        return self.said(more=10 * self.e.offset)

    def _not_supported(self):
        return self.said("a library's" if "::" in self.detail and " " not in self.detail else None)
