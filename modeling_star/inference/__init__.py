"""Prediction with saved models: pipelines, question answering, translation, long texts in windows."""
