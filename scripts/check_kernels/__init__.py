"""The parts of `scripts/check-kernels`."""
