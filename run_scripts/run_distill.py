#!/usr/bin/env python
"""`modeling-star distill` as a script, for `accelerate launch`."""

from modeling_star.commands.distill import main


if __name__ == "__main__":
    main()
