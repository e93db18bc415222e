"""What the run scripts share: arguments, data, tokenizers, metrics, reports, model cards."""
