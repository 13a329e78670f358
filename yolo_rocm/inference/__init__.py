"""Prediction by whatever is fastest and right: torch under the preset, or the model exported for another runtime.

A way to predict is an engine, a device and a data type. Each is measured in a process of its own that may crash or
hang, and compared with torch's fp32 result on the CPU; only one that agrees may be chosen. May import rooms from
`session` down to `utils`. A newcomer adds a runtime as an entry of `diagnosis/predict_engines.py` and its devices in
`ways`; what counts as the same result is in `agreement`.
"""
