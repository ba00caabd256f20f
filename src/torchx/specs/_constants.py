"""Values that stand for something that is not there."""

ALL = "all"
"""The pseudo backend that means every scheduler."""
MISSING = "<MISSING>"
"""A required text that was not given."""
NONE = "<NONE>"
"""An optional text that was not given."""
UNKNOWN = "<UNKNOWN>"
"""An attribute that a scheduler could not recover."""
GiB = 1024
"""MB in one GiB."""
