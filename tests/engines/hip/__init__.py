"""Engine `hip` on machines without its GPU."""
