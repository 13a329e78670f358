"""The room that knows Ultralytics from inside: named probes, and named, undoable patches of its engine and data sets.

Its modules are imported by name: `from ..ultralytics_hooks import trainers`, `from ..ultralytics_hooks.log import say`.
Nothing here imports torch or Ultralytics before it is used. May import rooms from `telemetry` down to `utils`; what it
needs from above (who explains an error, who takes a trainer over) is passed in. A newcomer comes here when a release of
Ultralytics has moved something: what is relied on is a row in `probes`, and a patch is a `scoped_patch.attribute`.
"""
