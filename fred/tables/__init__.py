"""Tables in files of any kind: unpacked, decoded, split into cells, and read as names, numbers, durations or dates."""
