"""One training run: arguments, builders, losses, trainer, checkpoints, model card."""
