"""Which protocol reaches a target first on a cluster: what to try, what it came to, and where time is lost meanwhile."""
