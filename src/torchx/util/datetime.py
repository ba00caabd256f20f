"""Times in the past."""

import time


def get_past_epoch_time(days_past: int) -> int:
    """Seconds since the epoch, that many days ago."""
    return int(time.time()) - days_past * 24 * 60 * 60
