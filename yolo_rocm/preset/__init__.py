"""Presets: which settings are right for a card, and from which file or argument each value comes.

`schema` says what may be in a preset, `files` and `select` find one, `resolve` combines the layers, `evidence` reads
what `yolo-rocm certify` found on cards, `variables` applies its environment variables in time. This room may import
`hardware`, `utils` and `engines.names` (no torch), and not Ultralytics. A newcomer adds a key to `schema`, or a card as
a file in configs/gpu, without code.
"""
