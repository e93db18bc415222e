#!/usr/bin/env python
"""`modeling-star glue` as a script, for `accelerate launch`."""

from modeling_star.commands.glue import main


if __name__ == "__main__":
    main()
