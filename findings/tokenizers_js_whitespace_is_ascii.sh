#!/usr/bin/env bash
# Question: does a tokenizer.json with the pre-tokenizer Whitespace give the same tokens in Python (tokenizers) and in
#   JavaScript (@huggingface/tokenizers)?
# Guess: yes. The README of the latter says that its regular expressions have the word characters of the former's.
# Seen: of sentences in five languages only the English one. Whitespace is \w+|[^\w\s]+ in both, but in JavaScript this
#   \w is ASCII: "café" is cut before "é", and a Russian or Chinese word keeps the punctuation that follows and becomes
#   [UNK]. Patterns in the file are translated: Split with this very one gives the same tokens in both. No error.
# Who meets it: whoever trains a tokenizer with Whitespace, as the quick tour of tokenizers does, on texts with letters
#   beyond ASCII, and runs the model in a browser: it gets other ids than it was trained on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
cd "$folder"
npm install --silent --no-audit --no-fund @huggingface/tokenizers@0.2.0
cat > tokens.mjs <<'END'
import { readFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const texts = JSON.parse(readFileSync("texts.json"));
const tokenizer = new Tokenizer(JSON.parse(readFileSync("tokenizer.json")), {});
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text))));
END
"$folder/venv/bin/python" - <<'END'
import json
import subprocess
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

package = json.loads(Path("node_modules/@huggingface/tokenizers/package.json").read_text())
print("tokenizers", tokenizers.__version__, package["name"], package["version"])
texts = ["The house is open.", "Un café, très loin.", "Die Größe der Tür.", "Привет, мир!", "你好，世界。"]
Path("texts.json").write_text(json.dumps(texts))


def in_both(pre_tokenizer):
    """The encodings of `texts` in Python and in JavaScript by one file, a WordPiece model of the words of `texts`."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=1000, special_tokens=["[UNK]"], show_progress=False)
    )
    tokenizer.save("tokenizer.json")
    python = [(encoding.tokens, encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    output = subprocess.run(["node", "tokens.mjs"], check=True, capture_output=True, text=True).stdout
    return python, [(encoding["tokens"], encoding["ids"]) for encoding in json.loads(output)]


python, javascript = in_both(pre_tokenizers.Whitespace())
for (tokens, _), (others, _) in zip(python, javascript, strict=True):
    print("Whitespace: Python", tokens, "JavaScript", others)
assert not any("[UNK]" in tokens for tokens, _ in python)
assert [x == y for x, y in zip(python, javascript, strict=True)] == [True, False, False, False, False]
assert javascript[3][0] == ["[UNK]", "[UNK]"] and javascript[4][0] == ["[UNK]"]

python, javascript = in_both(pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "removed", invert=True))
print("Split by the same pattern: equal", python == javascript)
assert python == javascript
END
