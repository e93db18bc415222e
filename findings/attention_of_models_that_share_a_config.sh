#!/usr/bin/env bash
# Question: two models are made by AutoModel.from_config from one configuration object, the first with
#   attn_implementation="eager", the second with "sdpa". Which attention does each compute?
# Guess: each its own: the argument is given per call, and from_pretrained gives every model a configuration of its own.
# Seen: both compute the second's. The argument is written into the configuration object, which the models share, so the
#   first model changes after it was made: it calls sdpa, and output_attentions=True gives it no attentions.
# Who meets it: whoever tests or times an attention against another on random weights: the two agree to the last bit,
#   and take the same time, since the same function ran twice.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0 transformers==5.23.0
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - 2>/dev/null <<'END'
import copy
from unittest.mock import patch

import torch
import transformers
from transformers import AutoModel, BertConfig

print("transformers", transformers.__version__, "torch", torch.__version__)
SHAPE = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def sdpa_calls(model):
    """How often a forward pass calls scaled_dot_product_attention."""
    function = torch.nn.functional.scaled_dot_product_attention
    with patch("torch.nn.functional.scaled_dot_product_attention", side_effect=function) as counted:
        model(torch.tensor([[1, 2, 3]]))
    return counted.call_count


def pair(*configs):
    """A model with eager attention, then one with sdpa."""
    return [
        AutoModel.from_config(config, attn_implementation=name).eval()
        for config, name in zip(configs, ("eager", "sdpa"), strict=True)
    ]


config = BertConfig(**SHAPE)
shared = [sdpa_calls(model) for model in pair(config, config)]
apart = [sdpa_calls(model) for model in pair(copy.deepcopy(config), copy.deepcopy(config))]
print("calls of sdpa by the eager and the sdpa model, one configuration:", shared, "two copies:", apart)
assert shared == [1, 1]
assert apart == [0, 1]
END
