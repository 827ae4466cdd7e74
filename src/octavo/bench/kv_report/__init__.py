"""``octavo kv-report``: what each way to store K and V costs in fidelity, memory and speed."""
