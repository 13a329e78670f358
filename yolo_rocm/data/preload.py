"""The first module a fork server imports: what it imports after this is light."""

from __future__ import annotations

from .lazy_imports import defer_imports

# The server imports modules by name and calls nothing; this one exists for its effect, in that process alone.
defer_imports()
