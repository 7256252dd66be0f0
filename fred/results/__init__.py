"""A scenario's runs together: run, written into a folder, read, verified, compared."""
