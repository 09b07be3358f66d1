"""Progress bars that report to one hook of the process."""

import time

PROGRESS_BAR_ENABLED = True
PROGRESS_BAR_HOOK = None

PROGRESS_THROTTLE_MIN_INTERVAL = 0.1  # seconds
PROGRESS_THROTTLE_MIN_PERCENT = 0.5


def set_progress_bar_enabled(enabled):
    """Turn console progress bars on or off."""
    global PROGRESS_BAR_ENABLED
    PROGRESS_BAR_ENABLED = enabled


def set_progress_bar_global_hook(function):
    """Install ``function(value, total, preview, node_id=None)`` for bars made from now on."""
    global PROGRESS_BAR_HOOK
    PROGRESS_BAR_HOOK = function


class ProgressBar:
    """Progress of one node, reported at most every PROGRESS_THROTTLE_MIN_INTERVAL seconds.

    The first and the last report and those with a preview always go out.
    """

    def __init__(self, total, node_id=None):
        self.total = total
        self.current = 0
        self.hook = PROGRESS_BAR_HOOK
        self.node_id = node_id
        self._last_update_time = 0.0
        self._last_sent_value = -1

    def update_absolute(self, value, total=None, preview=None):
        """Set the value reached, and the total if it changed."""
        if total is not None:
            self.total = total
        self.current = min(value, self.total)
        if self.hook is None:
            return
        now = time.perf_counter()
        first, last = self._last_sent_value < 0, self.current >= self.total
        if not (preview is not None or first or last or self._is_due(now)):
            return
        self.hook(self.current, self.total, preview, node_id=self.node_id)
        self._last_update_time = now
        self._last_sent_value = self.current

    def update(self, value):
        """Add to the value reached."""
        self.update_absolute(self.current + value)

    def _is_due(self, now):
        percent = 100.0
        if self.total > 0:
            percent = (self.current - max(0, self._last_sent_value)) / self.total * 100
        elapsed = now - self._last_update_time
        return (
            elapsed >= PROGRESS_THROTTLE_MIN_INTERVAL and percent >= PROGRESS_THROTTLE_MIN_PERCENT
        )
