"""Scenario files: reading, validation, error messages with line numbers, and the JSON Schema."""
