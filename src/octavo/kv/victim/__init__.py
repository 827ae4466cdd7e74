"""Who is preempted, one policy a file."""
