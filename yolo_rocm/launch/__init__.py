"""Processes that are started under a preset: scripts, ranks of several GPUs, and children of Ultralytics.

`run_script` is `yolo-rocm run`, with `startup/` and `import_hook` on the other side of the new process; `rank` and
`child` are what Ultralytics' own launchers are made to run. May import `api`, `session` and everything below; only
`cli` and `bench` import it. A newcomer comes here to change how a preset reaches another process; what such a
process is told is in `session.given`.
"""
