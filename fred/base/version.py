"""The version, which both the package and its build read."""

__version__ = "0.2.0"
