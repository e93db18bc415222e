"""Files and Hub data sets to model inputs: readers, columns, labels, splits, tokenizers, collators."""
