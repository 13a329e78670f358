"""One run under a preset: what a session changes in this process, for how long, and what is written about it.

`session` is the preset applied, `run` the way every train, val, predict and tune begins and ends, `events` what a run
hears from Ultralytics, `training` what it keeps of one trainer. May import everything below it (`report`, `diagnosis`,
`ultralytics_hooks`, `telemetry`, `preset`, `data`, `conv`), never `api`, `launch`, `bench` or `cli`. Modules that are
imported before a run begins import no torch: a preset's variables come first. A newcomer who wants something to happen
at the beginning or end of every run changes `run`; in a training, `training`; in a file next to `results.csv`,
`artifacts`.
"""
