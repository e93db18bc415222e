#!/usr/bin/env python
"""`modeling-star convert` as a script, for `accelerate launch`."""

from modeling_star.commands.convert import main


if __name__ == "__main__":
    main()
