"""The version, where both the package and its build find it."""

__version__ = "0.2.0"
