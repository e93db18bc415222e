#!/usr/bin/env python
"""`modeling-star predict` as a script, for `accelerate launch`."""

from modeling_star.commands.predict import main


if __name__ == "__main__":
    main()
