"""Figures, tables, and HTML reports of results."""
