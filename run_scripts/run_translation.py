#!/usr/bin/env python
"""`modeling-star translation` as a script, for `accelerate launch`."""

from modeling_star.commands.translation import main


if __name__ == "__main__":
    main()
