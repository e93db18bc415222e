"""A module for each format of files; `readers` has their table."""
