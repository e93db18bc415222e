"""A module for each format of files; `data/detect.py` has their table."""
