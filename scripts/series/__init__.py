"""The patch series in vllm/: bring the base, apply, take off, export, inspect, lint."""
