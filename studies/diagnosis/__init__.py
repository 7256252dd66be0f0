"""Whether the intervals and verdicts of `fred diagnose` hold: simulated clusters that are slow in spells, of known gain."""
