"""The series' tools, each run as `python -m scripts.NAME` from the repository root."""
