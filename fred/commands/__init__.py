"""The command line: one file per command, apart from short ones, and the tables they print."""
