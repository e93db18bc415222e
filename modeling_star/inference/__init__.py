"""Saved models at work: pipelines, answers to questions, translation, long texts in windows."""
