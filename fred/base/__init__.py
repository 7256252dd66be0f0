"""Foundations of all other packages: the error, random streams, files, the numeric environment, progress and signals."""
