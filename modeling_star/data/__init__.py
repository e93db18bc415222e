"""Files and Hub data sets to model inputs: readers, columns, labels, splits, tasks, tokenizers, windows, collators."""
