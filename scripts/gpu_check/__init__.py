"""The sections of `scripts/gpu-check`."""
