#!/usr/bin/env python
"""`modeling-star export` as a script, for `accelerate launch`."""

from modeling_star.commands.export import main


if __name__ == "__main__":
    main()
