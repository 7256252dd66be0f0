"""What a recorded trace looks like, and which simulated cluster behaves like it."""
