"""The measurements of one run, in memory or on disk, as tables, never as pictures."""
