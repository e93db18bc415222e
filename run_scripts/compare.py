#!/usr/bin/env python
"""`modeling-star compare` as a script, for `accelerate launch`."""

from modeling_star.commands.compare import main


if __name__ == "__main__":
    main()
