"""What all other rooms stand on: the error, random streams, files, the numeric environment, progress, signals."""
