"""What one run came to, in memory or on disk, and what can be counted of it: tables, never pictures."""
