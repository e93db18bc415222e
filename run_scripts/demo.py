#!/usr/bin/env python
"""`modeling-star demo` as a script, for `accelerate launch`."""

from modeling_star.commands.demo import main


if __name__ == "__main__":
    main()
