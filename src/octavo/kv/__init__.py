"""The KV core: which request owns which block."""
