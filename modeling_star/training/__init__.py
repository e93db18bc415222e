"""What the run scripts share: data, tokenizers, metrics, reports, model cards."""
