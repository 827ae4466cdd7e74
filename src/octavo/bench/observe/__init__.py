"""The server's side of a load run: what its /metrics and its step log say, laid beside what the client saw."""
