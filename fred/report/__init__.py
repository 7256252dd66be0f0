"""A result on one page: an HTML file that opens from disk, answers what was asked, and lets its reader look around."""
