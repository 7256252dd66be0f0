"""The one error a user can cause."""


class FredError(Exception):
    """Something the user asked for cannot be done; the message says what, where, what was expected and what to do.

    The command line prints the message and exits with code 2; no traceback, nothing written.
    """
