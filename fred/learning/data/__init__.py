"""Data sets: built-in ones, generated ones, and readers of the user's own files."""
