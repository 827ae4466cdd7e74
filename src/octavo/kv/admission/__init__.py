"""Whether a waiting request may start, one policy a file."""
