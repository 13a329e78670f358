"""Developers' tools: in the repository and the source archive, not in the wheel."""
