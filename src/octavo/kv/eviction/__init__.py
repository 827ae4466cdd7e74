"""Which idle cached block goes first, one policy a file."""
