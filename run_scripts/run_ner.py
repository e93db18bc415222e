#!/usr/bin/env python
"""`modeling-star tag` as a script, for `accelerate launch`."""

from modeling_star.commands import run


if __name__ == "__main__":
    run("tag")
