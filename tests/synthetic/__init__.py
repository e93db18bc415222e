"""Synthetic corpora that the tests train on."""
