"""What the scripts that run engines share: one engine a process, its settings, models, answers."""
