"""The unit of the clock, and limits on the size of a run, beyond which FRED refuses scenarios."""

NANOSECONDS = 1_000_000_000  # per second
LONGEST = 9e9  # s, 285 years: about the range of 64-bit nanoseconds
MOST_GRADIENTS = 200_000_000  # of one run: they take an hour, and more memory than most machines have
MOST_BYTES = 1 << 48  # of one model or message
MOST_POINTS = 1_000_000  # evaluations of a run
