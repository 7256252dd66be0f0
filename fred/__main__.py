"""`python -m fred`."""

from fred.cli import program

if __name__ == "__main__":  # not where another process imports what the first one ran
    program()
