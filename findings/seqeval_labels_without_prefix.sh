#!/usr/bin/env bash
# Question: which score does seqeval give to labels without a prefix: PER, ORG, LOC, or Few-NERD's person-other?
# Guess: each word with a label other than O counts as (a part of) an entity of that label; or an error.
# Seen: the first letter is taken as the prefix. ORG begins with O and is outside: a prediction with every ORG missed
#   and four invented has an F1 of 1. A type is what follows the first hyphen: location-other for person-other is right.
#   There is a warning, which says that the label "seems not to be NE tag".
# Who meets it: whoever scores Few-NERD or any other corpus with plain classes of words, through seqeval, evaluate's
#   "seqeval" or a training script that uses either.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    seqeval==1.2.2 numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'END'
from importlib.metadata import version

from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities

print("seqeval", version("seqeval"))
truth = ["ORG", "O", "PER", "PER", "O", "LOC", "O", "ORG"]
guess = ["O", "ORG", "PER", "PER", "ORG", "LOC", "ORG", "O"]
print("entities", get_entities(truth))
print("F1 without one right ORG", f1_score([truth], [guess]))
few = f1_score([["person-other", "O"]], [["location-other", "O"]])
print("F1 of location-other for person-other", few)
assert get_entities(truth) == [("ER", 2, 3), ("OC", 5, 5)]
assert f1_score([truth], [guess]) == few == 1.0
END
