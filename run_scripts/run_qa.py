#!/usr/bin/env python
"""`modeling-star qa` as a script, for `accelerate launch`."""

from modeling_star.commands.qa import main


if __name__ == "__main__":
    main()
