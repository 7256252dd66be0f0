"""Components that a scenario can name: their base class, the registry of names, and support for users' own classes."""
