"""The search for an edit of the port that makes failing outputs right."""
