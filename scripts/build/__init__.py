"""`make build`: the release's binaries beside the patched tree, in an isolated environment."""
