"""What the user asks for: scenario files, read, checked, located line by line, and written as a JSON Schema."""
