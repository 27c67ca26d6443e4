"""Cache groups and capacity of a model before and after patch 0001."""
