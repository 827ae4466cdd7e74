"""Which free blocks a request gets, one policy a file."""
