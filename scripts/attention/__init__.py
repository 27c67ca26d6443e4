"""Attention steps over each cache format, run through the engine's own layer and backend."""
