"""A run: from arguments to data, model, training, scores and reports; its output folder and its errors."""
