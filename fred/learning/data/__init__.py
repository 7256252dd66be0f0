"""Data sets: a file for each, and how users' own are read."""
