"""Execution of runs with their seeds: recorded, replayed or interpreted, measured, stored; in one process or several."""
