"""What both sides did, operation by operation and call by call, and the ways back through it."""
