"""The command line: a file for each command that is longer than a call, and what they print."""
