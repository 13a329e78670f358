"""What all operators share: candidates, measuring, choosing, plans on disk, qualification, chunking, launching kernels.

An operator such as convolution describes itself by one `operator.Operator` and gets a planner for it. Nothing here
knows an operator: it imports `hardware`, `utils` and `errors` alone, and `names` not even torch. Change `names` for a
new engine, `tuning` and `selection` for how candidates are timed and chosen, `triton` and `hip` for how kernels
are compiled and launched.
"""
