#!/usr/bin/env bash
# Question: two threads load a model each with from_pretrained, and the loads overlap: the first begins first and ends
#   first. Does a model that is made afterwards, in one thread, share the weights of its embeddings and its head?
# Guess: yes. A load may be slow or fail beside another, but what is over leaves nothing behind.
# Seen: no. from_pretrained replaces PreTrainedModel.tie_weights, for the whole process, by a function that does nothing,
#   and puts back what it found. The second load found the first one's, and it stays. No later model is tied, and
#   nothing says so. (A pull request, transformers 44940, is open.)
# Who meets it: services that load models when they are first asked for, and tests that load in threads: fine-tuning a
#   masked language model afterwards trains two tables in place of one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0 transformers==5.23.0
cd "$folder"
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - 2>/dev/null <<'END'
import threading

import torch
import transformers
from transformers import BertConfig, BertForMaskedLM

print("transformers", transformers.__version__, "torch", torch.__version__)
SHAPE = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BertForMaskedLM(BertConfig(**SHAPE)).save_pretrained("bert")


def is_tied():
    """Whether a model that is made now shares the weights of its embeddings and its head."""
    model = BertForMaskedLM(BertConfig(**SHAPE))
    return model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight


second_is_made, first_is_loaded = threading.Event(), threading.Event()


class First(BertForMaskedLM):
    """Its layers take so long to make that the second model is begun meanwhile."""

    def __init__(self, config):
        super().__init__(config)
        second_is_made.wait(60)


class Second(BertForMaskedLM):
    """Its layers take longer than the first model's load."""

    def __init__(self, config):
        super().__init__(config)
        second_is_made.set()
        first_is_loaded.wait(60)


def load_first():
    First.from_pretrained("bert")
    first_is_loaded.set()


before = is_tied()
first = threading.Thread(target=load_first)
first.start()
while transformers.PreTrainedModel.tie_weights.__name__ == "tie_weights":  # until the first one has begun
    pass
Second.from_pretrained("bert")
first.join()
after = is_tied()
print("a fresh BertForMaskedLM has tied weights: before", before, "after", after)
assert before
assert not after
END
