"""`make report`: results/ as one page with plots, and the README's figures, from JSON alone."""
