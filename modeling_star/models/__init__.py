"""Everything that a saved folder ships, flat: imports only torch, transformers and its siblings."""
