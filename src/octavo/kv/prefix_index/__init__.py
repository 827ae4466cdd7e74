"""How computed blocks are found again, one policy a file."""
