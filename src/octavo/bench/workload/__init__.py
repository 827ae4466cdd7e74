"""What a benchmark asks of an engine: arrivals, lengths, prompts; from a TOML file, a trace, or flags. The same for the same seed."""
