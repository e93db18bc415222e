#!/usr/bin/env python
"""Says where this script is now."""

from modeling_star.commands import MOVED


if __name__ == "__main__":
    raise SystemExit(f"run_translation.py: {MOVED}")
