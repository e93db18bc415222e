#!/usr/bin/env python
"""`modeling-star ner` as a script, for `accelerate launch`."""

from modeling_star.commands.ner import main


if __name__ == "__main__":
    main()
