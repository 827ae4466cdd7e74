"""The load client: sends a workload to any OpenAI-compatible server, and notes what came when."""
