"""Pictures of what was counted."""
