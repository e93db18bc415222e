"""Known formats that are not read, and what to write instead."""

import re

from ...errors import UserError
from ..detect import Head, is_data
from ..files import Options


_ROW = '{"text": "Mira went to Quell .", "label": [[0, 4, "PER"], [13, 18, "LOC"]]}'
_TABLE = "a workbook, which is not read. Save its sheet as csv"
_PICKLE = "a pickle, which can run code and is not read. Save its rows as json lines: " + _ROW
_CONLL = f"Export CoNLL 2002 from INCEpTION, or write rows with offsets: {_ROW}"
_SPACY = (
    "Convert it where spaCy is installed: `python -c 'import json, spacy; from spacy.training.converters import "
    'json_to_docs; docs = {docs}; [print(json.dumps({"text": d.text, "entities": [[e.start_char, e.end_char, '
    'e.label_] for e in d.ents]})) for d in docs if d.has_annotation("ENT_IOB")]\' > {stem}.jsonl`'
)
_DOCBIN, _V2 = 'spacy.tokens.DocBin().from_disk("{path}").get_docs(spacy.blank("xx").vocab)', 'open("{path}").read()'
_OTHER_ENDINGS = {
    ".xmi": f"UIMA's XMI, which is not read. {_CONLL}",
    ".zip": "an archive. Unpack it, and name a file or folder in it",
    ".rels": "a file of relations, which are not read. Name the folder with brat's .txt and .ann",
    ".spacy": "spaCy's DocBin, which is not read. " + _SPACY.replace("{docs}", _DOCBIN),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _TABLE),
    **dict.fromkeys((".pkl", ".pickle"), _PICKLE),
}
_BCONV = (
    "Convert it: `pip install bconv` and `python -c \"import bconv; bconv.dump(bconv.load('{path}', fmt='FORMAT'), "
    "open('{stem}.conll', 'w'), fmt='conll', tagset='IOB', include_offsets=False)\"`"
)
_INLINE = re.compile(r"<(START:)?([A-Za-z_]+)>[^<>\n]+<(/\2|END)>")
_XML = r"(<[?!][^>]*>\s*)*<"
_OTHER_BEGINNINGS = {
    r"#FORMAT=WebAnno TSV": ("WebAnno TSV", _CONLL),
    r"""(?s)\s*[\[{].{,200}?"paragraphs"\s*:\s*\[\s*\{(\s*"raw"\s*:\s*"(\\.|[^"\\])*",)?\s*"sentences"\s*:""": (
        "spaCy's json of version 2",
        _SPACY.replace("{docs}", f"json_to_docs({_V2})"),
    ),
    r"\d+\|[ta]\|": ("PubTator", _BCONV.replace("FORMAT", "pubtator")),
    _XML + r"collection\b": ("BioC", _BCONV.replace("FORMAT", "bioc_xml")),
    r'\s*\{[^\[\]]*"documents"\s*:\s*\[[^\[\]]*"passages"': ("BioC", _BCONV.replace("FORMAT", "bioc_json")),
    _XML + r"TEI\b": ("TEI", f"Import it in INCEpTION. {_CONLL}"),
    _XML + r"GateDocument\b": ("GATE's XML", f"Write rows with offsets: {_ROW}"),
}


def recognise(head: Head, options: Options) -> None:
    """Name what to write instead of a file in a known format that is never read."""
    path, ending = head.path, head.ending

    def error(problem: str) -> UserError:
        filled = problem.replace("{path}", str(path)).replace("{stem}", path.stem)
        return UserError(f"{path} {filled}")

    if ending in _OTHER_ENDINGS:
        raise error(f"ends in {ending!r}: {_OTHER_ENDINGS[ending]}.")
    if options.as_texts and (ending == ".txt" or not is_data(path)):
        return
    start = head.content[: 1 << 14].decode("utf-8", "ignore").removeprefix("\ufeff")
    for beginning, (name, advice) in _OTHER_BEGINNINGS.items():
        if re.match(beginning, start):
            raise error(f"is {name}, which is not read. {advice}")
    widths = {len(line.split()) for line in start.splitlines()} - {0}
    if ending == ".xml" or (ending == ".txt" and len(widths) > 1 and _INLINE.search(start)):
        raise error(f"has its labels within the text, which is not read. Write rows with offsets: {_ROW}")
