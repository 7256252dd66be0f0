"""The papers' figures and tables, measured again: `python -m reproductions [NAME ...]` (see `make reproduce`)."""
