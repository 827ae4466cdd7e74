"""``octavo bench kv``: one load under each set of KV policies, and where every slot of a full pool is."""
