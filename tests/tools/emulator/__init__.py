"""The emulator is tested against something else than our kernels."""
