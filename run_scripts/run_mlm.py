#!/usr/bin/env python
"""`modeling-star mlm` as a script, for `accelerate launch`."""

from modeling_star.commands.mlm import main


if __name__ == "__main__":
    main()
