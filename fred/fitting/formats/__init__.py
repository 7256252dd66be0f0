"""Formats of measured times of communication: a file for each tool, which recognises and reads its output."""
