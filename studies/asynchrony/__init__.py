"""Is asynchrony needed? Synchronous and asynchronous methods on the same clusters, with the same gradients."""
