"""Star-Transformer and its kin as Hugging Face Transformers models. Importing it registers them under Auto*."""

import sys


__version__ = "0.2.0"

# A command that only prints its help does not wait seconds for torch and transformers.
if "--help" not in sys.argv:
    from .auto import *  # noqa: F403
