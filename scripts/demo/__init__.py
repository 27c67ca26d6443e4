"""`make demo`: the patched engine answers the same prompts with a plain and a compressed cache."""
