"""Limits on the size of a run. FRED refuses scenarios beyond them."""

LONGEST = 9e9  # s, 285 years: about the range of 64-bit nanoseconds
MOST_GRADIENTS = 200_000_000  # of one run: they take an hour, and more memory than most machines have
MOST_BYTES = 1 << 48  # of one model or message
MOST_POINTS = 1_000_000  # evaluations of a run
