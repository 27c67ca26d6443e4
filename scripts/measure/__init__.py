"""`make measure`: every run behind README and results/REPORT.md, one after the other."""
