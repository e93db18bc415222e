#!/usr/bin/env python
"""`modeling-star push` as a script, for `accelerate launch`."""

from modeling_star.commands.push import main


if __name__ == "__main__":
    main()
