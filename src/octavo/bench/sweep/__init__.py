"""The highest Poisson rate at which a server keeps its SLOs: verdicts on rates, and the search over them."""
