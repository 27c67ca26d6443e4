"""What of the series runs where: from the dispatch's own code, its compile tests and results/."""
