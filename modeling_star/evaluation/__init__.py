"""Scores, reports, and comparisons of finished runs."""
