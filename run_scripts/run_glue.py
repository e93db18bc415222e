#!/usr/bin/env python
"""`modeling-star classify` as a script, for `accelerate launch`."""

from modeling_star.commands import run


if __name__ == "__main__":
    run("classify")
