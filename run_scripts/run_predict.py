#!/usr/bin/env python
"""Tag, classify, rate or translate texts with a saved model: `modeling-star predict`, for `accelerate launch`."""

from modeling_star.commands.predict import main


if __name__ == "__main__":
    main()
