#!/usr/bin/env python
"""`modeling-star explain` as a script, for `accelerate launch`."""

from modeling_star.commands.explain import main


if __name__ == "__main__":
    main()
