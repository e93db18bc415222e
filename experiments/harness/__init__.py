"""The lab: tables of the papers, results pages, benchmarks. Not part of the package."""
