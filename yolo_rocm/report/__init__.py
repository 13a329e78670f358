"""The page of a run: everything a training left in its folder, in one file of bounded size that needs no network.

`files` reads, `run_data` makes a `RunData` of a folder, `sections`, `head` and `compare` say what it shows, `charts` is
the data of its three plots, `drawing` places their lines, `page` fills the template. May import `telemetry`, `data`,
`conv.names` and `utils`; torch and Ultralytics are never imported, so that a run can be looked at on any machine. A
newcomer adds a chart in `charts.py`, and a table in `sections.py` and its place in `templates/page.html`.
"""
