#!/usr/bin/env bash
# Question: how does charset-normalizer decode a page of French or Portuguese in Latin-1 (or Windows-1252)?
# Guess: as latin_1 or cp1252, or as another code page that has the same letters at these bytes.
# Seen: French as hp_roman8 ("trÒs belle"), Portuguese as cp1250 ("Năo há"), at 130 bytes and at 2,600. Spanish, German
#   and Danish texts come out right. The wrong result is str(best), without a warning.
# Who meets it: whoever converts old files of mixed languages by the detected encoding; also through requests'
#   `response.text`, where a server names no charset and chardet is not installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check charset-normalizer==3.5.2
"$folder/venv/bin/python" - <<'END'
from importlib.metadata import version

from charset_normalizer import from_bytes

TEXTS = {
    "French": "Le film commence lentement, mais la fin est une très belle surprise. Où étiez-vous l'été dernier ? "
    "À côté de la forêt, ça va.\n",
    "Portuguese": "O filme começa devagar, mas o final é uma ótima surpresa. Não há nada melhor; a atuação é "
    "fantástica e a música também.\n",
    "Spanish": "La película empieza despacio, pero el final es una sorpresa magnífica. ¿Qué más se puede pedir? El "
    "año pasado vimos otra versión en Málaga.\n",
}
print("charset-normalizer", version("charset-normalizer"))
wrong = {}
for language, text in TEXTS.items():
    for repeated in (text, text * 20):
        content = repeated.encode("latin-1")
        best = from_bytes(content).best()
        print(language, len(content), best.encoding, str(best)[:75].strip())
        if str(best) != repeated:
            wrong.setdefault(language, set()).add(best.encoding)
assert wrong == {"French": {"hp_roman8"}, "Portuguese": {"cp1250"}}, wrong
END
