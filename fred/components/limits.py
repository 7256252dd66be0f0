"""How large a scenario may make a run: what is refused beyond."""

LONGEST = 9e9  # s, 285 years: about as far as 64 bits of nanoseconds reach
MOST_GRADIENTS = 200_000_000  # of one run: an hour, and more memory than most machines have
MOST_BYTES = 1 << 48  # of one model or message
MOST_POINTS = 1_000_000  # at which a run is looked at
