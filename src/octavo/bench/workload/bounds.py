"""How much a workload may ask for, whether a file says it or a flag."""

MAX_REQUESTS = 1_000_000
MIN_RATE, MAX_RATE = 1e-6, 1e6
"""Requests a second."""
MIN_BURSTINESS, MAX_BURSTINESS = 0.001, 1000.0
MAX_CONCURRENCY = 65536
MAX_PREFIXES = 65536
MAX_TOKENS = 2**20
"""Of any length."""
MAX_WEIGHT = 1e9
MAX_SECONDS = 1e9
MAX_SEED = 2**63 - 1
