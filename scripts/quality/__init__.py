"""What the quality scripts share: pinned texts, cache formats, metrics, executed answers."""
