"""How batches reach the device."""
