"""Times in the past."""

import time


def get_past_epoch_time(days_past: int) -> int:
    """Returns the time of that many days ago, in seconds since the epoch."""
    return int(time.time()) - days_past * 24 * 60 * 60
