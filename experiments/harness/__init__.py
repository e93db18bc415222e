"""The harness: tables of experiments, stored runs, processes and pages. Not part of the package."""
