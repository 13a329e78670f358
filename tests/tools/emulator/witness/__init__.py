"""Small functions, compiled by clang for AMD GPUs and by the host's compiler for its CPU."""
