"""Swap one kernel's files between the patched and the pre-patch version, and bench both."""
