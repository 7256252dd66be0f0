"""Runs with their seeds: recorded and replayed or interpreted, measured, kept, in this process or in others."""
