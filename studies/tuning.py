"""The search, for studies that do not use the kit yet."""

from studies.kit.tuning import KEPT, POINTS, REPORTED, TUNING, Knobs, Settings, Tuned, search, tuned

__all__ = ["KEPT", "POINTS", "REPORTED", "TUNING", "Knobs", "Settings", "Tuned", "search", "tuned"]
