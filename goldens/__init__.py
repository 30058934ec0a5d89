"""Storage of what was recorded from an oracle, and whether it may be used on this machine."""
