"""One local file of any supported format -> one `datasets.Dataset`.

`datasets` reads json, csv and parquet; `data_csv`, `data_json` and `data_conll` say what of these formats it does not.
Whatever goes wrong is an error that names the file, the line, and what to write instead.
"""

import csv
import glob
import gzip
import itertools
import json
import logging
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from datasets import Dataset, Features, IterableDataset, List, Value, load_dataset
from datasets.exceptions import DatasetGenerationError, DatasetsError
from pyarrow.parquet import ParquetFile

from ..errors import UserError
from ..models.crf import entity_tag
from .caching import source_version


logger = logging.getLogger(__name__)


_BYTES_TO_TELL = 1 << 16
_SIDE_BY_SIDE = re.compile(rb"[\x80-\xFF]{2,}")
BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)


@contextmanager
def naming(path: Path, kind: str) -> Iterator[None]:
    """Within it whatever a reader raises becomes a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except BROKEN_GZIP as error:
        raise UserError(f"{path} is a broken or incomplete gzip file ({error}). Write it again.") from error
    except UnicodeDecodeError as error:
        packed = path.suffix.lower() == ".gz"
        here, there = shlex.quote(str(path)), shlex.quote(f"{path.stem}_utf8{path.suffix}")
        with open(path, "rb") as file:
            encoding = likely_encoding(file.read(_BYTES_TO_TELL))
        convert = f", or convert it: iconv -f {encoding} -t UTF-8 {here} > {there}"
        advice = f"Save it as UTF-8{'' if packed else convert}."
        raise UserError(f"{path} is not UTF-8 text ({error}). {advice}") from error
    except Exception as error:
        # datasets wraps the reader's own words, which name the line, one level down.
        reason = str(error.__cause__ or error).strip() or type(error).__name__
        if "corresponds to no data" in reason:
            raise no_rows(path) from error
        raise UserError(f"{path} could not be read as {kind}: {reason}") from error


def likely_encoding(content: bytes) -> str:
    """
    What iconv may call the encoding of a text that is not UTF-8: UTF-16 by its first bytes, GB18030 where nearly all
    bytes beyond ASCII stand side by side, as those of Chinese do, else CP1252, which is Latin-1 with the quotes,
    dashes and the euro that Windows writes.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    high = sum(byte > 0x7F for byte in content)
    return "GB18030" if sum(map(len, _SIDE_BY_SIDE.findall(content))) > 0.9 * high else "CP1252"


def no_rows(path: Path) -> UserError:
    """The error of a file without rows."""
    return UserError(f"{path} holds no rows. Write at least one, or leave this file out of the arguments.")


def open_text(path: Path) -> IO[str]:
    """A text file, unpacked where its first two bytes say gzip (whatever its name says)."""
    if is_packed(path):
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline=None))
    return open(path, encoding="utf-8-sig", newline=None)


def is_packed(path: Path) -> bool:
    """Whether a file is one of gzip, whatever its name says."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def load_rows(builder: str, path: Path, cache_dir: str | None, **kwargs: Any) -> Dataset:
    """What a builder of `datasets` makes of one file."""
    # data_files are patterns: a "[" in a folder's name must not be read as one.
    files = {"train": glob.escape(str(path.resolve()))}
    return cast(Dataset, load_dataset(builder, data_files=files, split="train", cache_dir=cache_dir, **kwargs))


def generated(
    rows: Callable[..., Iterator[dict[str, Any]]],
    path: Path,
    features: Features,
    cache_dir: str | None,
    **options: Any,
) -> Dataset:
    """What `rows(path, **options)` yields, written to the cache one after the other and never held as a whole."""
    file = path.resolve()
    state = file.stat()
    # The cache is found by the arguments alone.
    told = (state.st_size, state.st_mtime_ns, source_version(__name__, rows.__module__))
    try:
        return Dataset.from_generator(
            _Generator(rows, told), features=features, cache_dir=cache_dir, gen_kwargs={"path": str(path), **options}
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


@dataclass(frozen=True)
class _Generator:
    """A generator of rows, and what its rows depend on beside its arguments."""

    rows: Callable[..., Iterator[dict[str, Any]]]
    told: tuple[int, int, str]

    def __call__(self, **options: Any) -> Iterator[dict[str, Any]]:
        return self.rows(**options)


_QUOTED_FIELD = re.compile(r'"([^"]|"")*"')


def read_csv(path: Path, separator: str, cache_dir: str | None, column_names: Sequence[str] | None) -> Dataset:
    """Every cell as text ("NA", "007" and "1.0" included): which columns are numbers is decided by who uses them."""
    plain = separator == "\t" and _quotes_are_text(path)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    names = _csv_header(path, separator, quoting, column_names)
    features = Features({name: Value("string") for name in names})
    header: dict[str, Any] = {"names": names, "header": None} if column_names else {}
    return load_rows(
        "csv", path, cache_dir, sep=separator, quoting=quoting, features=features, keep_default_na=False, **header
    )


def separator_of(path: Path, kind: str, column_names: Sequence[str] | None) -> str:
    """
    What parts the cells: tabs in a tsv, commas in a csv, but where its first line has none and other marks part it
    into several: spreadsheets in many countries write semicolons.
    """
    if kind == "tsv":
        return "\t"
    with open_text(path) as lines:
        first = next((line for line in lines if line.strip()), "")
    if "," in first:
        return ","
    cells = {mark: first.count(mark) + 1 for mark in ";\t"}
    found = [
        mark for mark, number in cells.items() if number == (len(column_names) if column_names else max(number, 2))
    ]
    if len(found) != 1 or cells[found[0]] < 2:
        return ","
    told = "semicolons" if found[0] == ";" else "tabs"
    logger.info(f"{path}: the cells are parted by {told}.")
    return found[0]


def _csv_header(path: Path, separator: str, quoting: Literal[0, 3], column_names: Sequence[str] | None) -> list[str]:
    """The column names, after a look at every row: pandas fills short rows and shifts the columns of long ones."""
    says = "--column_names" if column_names else "the first line"
    try:
        with _long_cells(), open_text(path) as lines:
            rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
            first = next((row for row in rows if row), [])
            # An index without a name, which pandas writes by default, is called as pandas calls it.
            header = [name or f"Unnamed: {place}" for place, name in enumerate(first)]
            names = list(column_names or header)
            if column_names and _alike(first) == _alike(names):
                raise UserError(f"{path} names its columns in its first line already: leave --column_names away.")
            for row in itertools.chain([first] if column_names else [], rows):
                if row and len(row) != len(names):
                    raise UserError(
                        f"{path}, line {rows.line_num} has {len(row)} cells, but {says} names {len(names)} "
                        f"columns ({', '.join(names)}): {separator.join(row)[:80]!r}. Give every row one cell a "
                        f"column, and put quotation marks around a text that holds {separator!r}."
                    )
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num} could not be read as csv: {error}") from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UserError(f"For {path} {says} names the column {repeated[0]!r} twice. Rename one of the two.")
    return names


@contextmanager
def _long_cells() -> Iterator[None]:
    """Within it a long document may be one cell."""
    limit = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _alike(names: Sequence[str]) -> list[str]:
    """Names whatever their order and capitals."""
    return sorted(name.strip().casefold() for name in names)


def _quotes_are_text(path: Path) -> bool:
    """Whether a tsv's quotation marks belong to the text (GLUE's files), not around fields (pandas' files)."""
    if _is_quoted(path):
        return False
    with open_text(path) as lines:
        fields = (field for line in lines for field in line.rstrip("\n").split("\t"))
        return any(field.startswith('"') and not _QUOTED_FIELD.fullmatch(field) for field in fields)


def _is_quoted(path: Path) -> bool:
    """Whether a tsv is whole with marks around its fields, of which some have several lines, and none a tab too."""
    widths, lines_in_fields = set(), False
    try:
        with _long_cells(), open_text(path) as lines:
            for row in csv.reader(lines, delimiter="\t", strict=True):
                widths.add(len(row) or 1)
                if any("\n" in field and "\t" in field for field in row):
                    return False
                lines_in_fields = lines_in_fields or any("\n" in field for field in row)
    except csv.Error:
        return False
    return lines_in_fields and len(widths) == 1


# In text that Python has put pairs of together: what is left is half of a character, which no file in UTF-8 holds.
_HALF = re.compile("[\ud800-\udfff]")


def read_json(path: Path, cache_dir: str | None) -> Dataset:
    """json lines, a json list of objects, or an object with such a list under "data"."""
    try:
        dataset = load_rows("json", path, cache_dir)
    except (DatasetsError, ValueError) as error:
        return _dataset_from_rows(path, list(json_rows(path)), error)
    if dataset.num_rows == 1 and isinstance(getattr(dataset.features.get("data"), "feature", None), dict):
        return load_rows("json", path, cache_dir, field="data")
    dated = [name for name, feature in dataset.features.items() if "timestamp" in str(feature)]
    if not dated:
        return dataset
    # json has no dates: the reader takes texts such as "2020-01-01" for dates and would lose their spelling.
    if not all(isinstance(getattr(feature, "feature", feature), Value) for feature in dataset.features.values()):
        return _dataset_from_rows(path, list(json_rows(path)), None)  # with objects in it, of keys that may be absent
    text = Value("string")
    kinds = {
        name: feature if name not in dated else text if isinstance(feature, Value) else List(text)
        for name, feature in dataset.features.items()
    }
    return generated(_json_cells, path, Features(kinds), cache_dir, names=tuple(kinds))


def _json_cells(path: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in json_rows(Path(path)):
        yield {name: row.get(name) for name in names}


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a json file, read one by one: slower than `datasets`, but able to name a line."""
    with open_text(path) as lines:
        head = lines.read(1 << 10).lstrip()
        lines.seek(0)
        if head.startswith("["):
            try:
                parsed: Iterable[tuple[int, Any]] = enumerate(json.load(lines), 1)
            except json.JSONDecodeError as error:
                raise UserError(f"{path} is not valid json: {error}") from error
            unit = "element"
        else:
            parsed, unit = _json_lines(path, lines), "line"
        for number, row in parsed:
            if not isinstance(row, dict):
                raise UserError(
                    f"{path}, {unit} {number} holds {str(row)[:60]!r}. Every row is an object with the columns as "
                    'keys, e.g. {"text": "a fine film", "label": "positive"}'
                )
            if _HALF.search(json.dumps(row, ensure_ascii=False)):
                raise UserError(
                    f"{path}, {unit} {number} has half of a character, as \\ud83d without what belongs to it: a text "
                    "was cut inside an emoji, say. Cut it before or behind."
                )
            yield row


def _json_lines(path: Path, lines: IO[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}, line {number} is not valid json ({error.msg} at column {error.colno}): "
                f"{line.strip()[:80]!r}. "
                'Write one object per line, e.g. {"text": "a fine film", "label": "positive"}'
            ) from error


def _dataset_from_rows(path: Path, rows: list[dict[str, Any]], error: Exception | None) -> Dataset:
    """The rows as a data set in memory, or an error that names the first two values of different types."""
    if not rows:
        raise no_rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        first: tuple[str, int, Any] | None = None
        for number, row in enumerate(rows, 1):
            kind = _json_kind(row.get(name))
            if kind is None:
                continue
            if first is None:
                first = (kind, number, row[name])
            elif kind != first[0]:
                raise UserError(
                    f"{path} mixes types in column {name!r}: row {first[1]} has {first[2]!r} ({first[0]}) and row "
                    f"{number} has {row[name]!r} ({kind}). Write one type everywhere, e.g. {str(row[name])!r} as text."
                )
    try:
        return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})
    except Exception as unreadable:
        raise UserError(f"{path} could not be read as json: {unreadable}") from (error or unreadable)


def _json_kind(value: Any) -> str | None:
    """Types that a column may not mix; None for values that fit any. Whole numbers and floats may be mixed."""
    if value is None or value == []:
        return None
    if isinstance(value, list):
        kinds = sorted({kind for kind in map(_json_kind, value) if kind})
        return "list of " + " and ".join(kinds) if kinds else None
    return {bool: "true/false", int: "number", float: "number", str: "text"}.get(type(value), type(value).__name__)


_CONLL_COLUMNS = {
    1: ["tokens"],
    2: ["tokens", "tags"],
    4: ["tokens", "pos_tags", "chunk_tags", "ner_tags"],  # CoNLL-2003
}
# Of ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC.
_CONLLU_COLUMNS = {1: "tokens", 3: "pos_tags", 4: "xpos_tags"}
# "#newparents" and "#id" are words of tweets.
_COMMENT = re.compile(r"#(\s*(newdoc|newpar)\b|\s*global\.columns|\s+id\s|\s*[\w.:-]+ = )")
# Names of columns that a tagger alone has ("_" is one to leave out), and the lines that tell whether a file is CoNLL.
_OF_TAGGERS = {
    "_",
    "tokens",
    "words",
    "token",
    "form",
    "tags",
    "ner_tags",
    "pos_tags",
    "chunk_tags",
    "xpos_tags",
    "upos",
}
_LINES_TO_TELL = 1000


def has_sentences(path: Path, column_names: Sequence[str]) -> bool:
    """
    Whether a file whose ending is not CoNLL's is CoNLL: its columns are called as those of a tagger, each line has as
    many cells without blanks, and empty lines stand between sentences. Chinese texts have no blanks either: a table
    is told by its names.
    """
    if not _OF_TAGGERS & set(column_names):
        return False
    with naming(path, "text"), open_text(path) as lines:
        begun = [line.strip("\r\n") for line in itertools.islice(lines, _LINES_TO_TELL)]
    tabbed = any("\t" in line for line in begun)
    rows = [_cells(line, tabbed) if line.strip(" \t") and not _is_docstart(line) else None for line in begun]
    rows = [row for row in rows if row is None or len(row) == len(column_names) or not row[0].startswith("#")]
    full = [row for row in rows if row is not None]
    words = all(len(row) == len(column_names) and not any(" " in cell for cell in row) for row in full)
    sentences = "".join(" " if row is None else "x" for row in rows).split()
    return words and len(sentences) > 1 and max(map(len, sentences)) > 1


def has_tags(path: Path) -> bool:
    """Whether a file whose ending is not CoNLL's is CoNLL without a doubt: each line ends in O or in a tag of one."""
    with naming(path, "text"), open_text(path) as lines:
        rows = [line.split() for line in itertools.islice(lines, _LINES_TO_TELL) if line.strip()]
    rows = [row for row in rows if not _is_docstart(row[0])]
    tagged = all(len(row) > 1 and entity_tag(row[-1]) for row in rows)
    return bool(rows) and tagged and has_sentences(path, _default_names(width_of(path)))


def width_of(path: Path) -> int:
    """
    How many columns a CoNLL file has.

    Raises:
        UserError: it has no line of them.
    """
    first = _first_line(path)
    return len(_cells(first, "\t" in first))


def read_conll(path: Path, cache_dir: str | None, column_names: Sequence[str] | None = None) -> Dataset:
    """
    Columns separated by tabs or blanks, one token a line, an empty line after each sentence.

    Args:
        path: the file.
        cache_dir: where `datasets` keeps its copy.
        column_names: a name for each column, "_" for one to leave out; None: what their number tells.

    Raises:
        UserError: the names are of another number, none is left, or one stands there twice.
    """
    first = _first_line(path)
    tabbed, width = "\t" in first, width_of(path)
    columns = dict(enumerate(_default_names(width)))
    conllu = width == 10 and first[0].isdigit()
    if conllu:
        columns = _CONLLU_COLUMNS
    if column_names:
        if len(column_names) != width:
            raise UserError(
                f"{path} has {width} columns ({first.strip()[:60]!r}), but --column_names names {len(column_names)}: "
                "name each, and write _ for one to leave out, e.g. `--column_names _,tokens,ner_tags`"
            )
        columns = {place: name for place, name in enumerate(column_names) if name != "_"}
        if not columns or len(set(columns.values())) < len(columns):
            raise UserError(
                f"--column_names {','.join(column_names)} names no column, or one twice: write a name for each that "
                "is read, e.g. `--column_names _,tokens,ner_tags`"
            )
    features = Features({name: List(Value("string")) for name in columns.values()})
    options = {"tabbed": tabbed, "width": width, "places": tuple(columns), "names": tuple(columns.values())}
    return generated(_conll_rows, path, features, cache_dir, **options, conllu=conllu)


def _first_line(path: Path) -> str:
    with open_text(path) as lines:
        found = (line for line in lines if line.strip(" \t\r\n") and line[0] != "#" and not _is_docstart(line))
        first = next(found, None)
    if first is None:
        raise no_rows(path)
    return first.strip("\r\n")


def _default_names(width: int) -> list[str]:
    return _CONLL_COLUMNS.get(width, ["tokens", *(f"column_{index}" for index in range(2, width)), "tags"])


def _conll_rows(
    path: str, tabbed: bool, width: int, places: tuple[int, ...], names: tuple[str, ...], conllu: bool
) -> Iterator[dict[str, list[str]]]:
    """The sentences, each with the columns that stand at some places of a line."""
    for sentence in _conll_sentences(Path(path), tabbed, width):
        if conllu:  # "3-4" is a spelling of two words that follow, "5.1" a word that nobody wrote: neither is a token
            sentence = [cells for cells in sentence if cells[0].isdigit()]
        yield {name: [cells[place] for cells in sentence] for place, name in zip(places, names, strict=True)}


def _conll_sentences(path: Path, tabbed: bool, width: int) -> Iterator[list[list[str]]]:
    """The cells of each line of each sentence."""
    sentence: list[list[str]] = []
    first_number: int | None = None
    of_entities: bool | None = None
    remarks: list[tuple[int, str]] = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip("\r\n")
            # An ideographic space is no empty line where it has a tag, or the line could be a token alone.
            if not line.strip(None if width > 1 else " \t") or _is_docstart(line):
                if sentence:
                    yield sentence
                    sentence = []
                continue
            cells = _cells(line, tabbed)
            if len(cells) == width - 1 and line.startswith("  "):  # a blank, a blank and its tag
                cells = [" ", *cells]
            if not sentence and line.startswith("#") and (_COMMENT.match(line) or len(cells) != width):
                continue
            if not sentence and width == 2 and len(cells) == 2 and cells[0] == "#" and not entity_tag(cells[1]):
                if of_entities is None:
                    of_entities = _tags_entities(path, tabbed)
                if of_entities:
                    remarks.append((number, line))
                    continue
            first_number = first_number or number
            if len(cells) != width or not cells[0]:
                raise UserError(
                    f"{path}, line {number} has {len(cells)} columns, but line {first_number} has {width}: "
                    f"{line[:80]!r}. A CoNLL file has one token a line with the same columns everywhere and an empty "
                    "line between sentences. Texts to classify go in a .jsonl or .csv file with a column 'text'."
                )
            if not cells[-1]:
                told = f"{path}, line {number} ends in a tab, with no tag after it: {line[:80]!r}."
                raise UserError(f"{told} Write one, O for none.")
            sentence.append(cells)
    if remarks:
        number, line = remarks[0]
        logger.warning("%s: %d lines are read as comments, first line %d: %r", path, len(remarks), number, line[:80])
    if sentence:
        yield sentence


def _tags_entities(path: Path, tabbed: bool) -> bool:
    """Whether a file of two columns tags entities, so that "# word" ahead of a sentence tags nothing."""
    with open_text(path) as lines:
        rows = (_cells(line.strip("\r\n"), tabbed) for line in lines if line.strip() and not _is_docstart(line))
        return all(entity_tag(cells[-1]) for cells in rows if cells[0] != "#")


def _is_docstart(line: str) -> bool:
    return line.startswith("-DOCSTART-")


def _cells(line: str, tabbed: bool) -> list[str]:
    # Not str.split(): a no-break or ideographic space may be the token itself.
    return line.split("\t") if tabbed else re.split(r"[ \t]+", line.strip(" \t"))


FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "conll",
    ".conll": "conll",
    ".conllu": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bmes": "conll",
}
"""What a file's ending (before `.gz`) says about its format."""

TextUnit = Literal["line", "paragraph", "file"]
"""What a document is in a `.txt` file that holds running text: a paragraph ends at an empty line."""

_STREAMED = ("text", "json", "parquet")
# Of a file that is streamed, held at a time: characters of running text, and rows.
_TEXT_BLOCK, _PARQUET_ROWS = 10 << 20, 100


def read_file(
    path: str | Path,
    cache_dir: str | None = None,
    text_unit: TextUnit | None = None,
    column_names: Sequence[str] | None = None,
) -> Dataset:
    """Read one file.

    Args:
        path: a file whose name ends as one of `FORMATS`, optionally followed by `.gz`.
        cache_dir: where `datasets` keeps its copy.
        text_unit: `.txt` files hold running text, and this is a row; None: they hold CoNLL columns.
        column_names: those of a csv, tsv or `.txt` file (of columns with tabs between them) without a header line, or
            of a CoNLL file, where "_" is a column to leave out. None: the first line of csv and tsv names them, and
            the number of columns those of CoNLL.

    Returns:
        The rows, in the order of the file. csv cells are all text; CoNLL gives `tokens` and one list column per tag;
        running text gives `text`, empty where a line or paragraph is.

    Raises:
        UserError: the file is absent or has no rows.
        UserError: its ending is unknown or its content is not of that format.
    """
    path = Path(path)
    kind = _check_file(path, text_unit)
    if column_names:
        kind = _headless(path, kind)
    if kind == "tsv" and column_names and has_sentences(path, column_names):
        kind = "conll"
    with naming(path, kind):
        if kind == "json":
            dataset = read_json(path, cache_dir)
        elif kind == "parquet":
            dataset = load_rows("parquet", path, cache_dir)
        elif kind == "text":
            dataset = load_rows("text", path, cache_dir, **_text_options(text_unit))
        elif kind == "conll":
            dataset = read_conll(path, cache_dir, column_names)
        else:
            dataset = read_csv(path, separator_of(path, kind, column_names), cache_dir, column_names)
    if dataset.num_rows == 0:
        raise no_rows(path)
    return dataset


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file in UTF-8, `.gz` too, as they are.

    Raises:
        UserError: it is not UTF-8, or no whole gzip file.
    """
    path = Path(path)
    with naming(path, "text"), open_text(path) as lines:
        return [line.rstrip("\n") for line in lines]


def is_table(path: str | Path) -> bool:
    """Whether a file's ending says that it has columns; `.txt` and unknown ones do not."""
    name = Path(path).name.lower().removesuffix(".gz")
    return not name.endswith(".txt") and Path(name).suffix in FORMATS


def conll_width(path: str | Path) -> int | None:
    """How many columns a file of CoNLL has; `None` of other endings."""
    return width_of(Path(path)) if is_table(path) and _check_file(Path(path)) == "conll" else None


def fits_columns(path: str | Path, column_names: Sequence[str]) -> bool:
    """Whether a `.txt` file has columns of these names: as many cells between tabs in each line, or a word a line."""
    lines = [line for line in read_lines(path) if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or has_sentences(Path(path), column_names))


def stream_files(paths: Sequence[str | Path], text_unit: TextUnit, column: str) -> IterableDataset:
    """Texts of files, one file after the other, read while they are used and never held as a whole.

    Args:
        paths: running text (`.txt`), json lines or parquet, each also with `.gz`; their kinds may be mixed.
        text_unit: what a row of running text is.
        column: of the texts. What else a file holds is not looked at, and may differ between files and rows.

    Raises:
        UserError: a file is absent or empty.
        UserError: a file is of another kind.
    """
    for path in paths:
        _streamed_kind(Path(path), text_unit)
    # A reader of `datasets` would want the columns of the first rows everywhere. The list of files is what is shared
    # out, and shuffled.
    options = {"paths": [str(path) for path in paths], "text_unit": text_unit, "column": column}
    return IterableDataset.from_generator(_stream, gen_kwargs=options)


def streamed_columns(path: str | Path, text_unit: TextUnit, column: str | None) -> Dataset:
    """The columns of a file for `stream_files`, as a table: of json those of the first row that has `column`.

    Raises:
        UserError, UserError: as in `stream_files`.
    """
    path = Path(path)
    kind = _streamed_kind(path, text_unit)
    with naming(path, kind):
        if kind == "text":
            return Dataset.from_dict({"text": [""]})
        if kind == "parquet":
            with _open_parquet(path) as file:
                if not file.metadata.num_rows:
                    raise no_rows(path)
                return Dataset(file.schema_arrow.empty_table())
        rows = json_rows(path)
        first = next(rows, None)
        if first is None:
            raise no_rows(path)
        if column is not None and column not in first:
            first = next((row for row in rows if column in row), first)
        # A table has one type a column; a row of json may hold what no table does.
        return Dataset.from_list([{name: cell if isinstance(cell, str) else None for name, cell in first.items()}])


def _streamed_kind(path: Path, text_unit: TextUnit) -> str:
    kind = _check_file(path, text_unit)
    if kind not in _STREAMED:
        raise UserError(
            f"{path} is {kind}, which is checked as a whole before use and so not streamed: write .txt, .jsonl or "
            ".parquet files, or leave --streaming away."
        )
    return kind


def _stream(paths: list[str], text_unit: TextUnit, column: str) -> Iterator[dict[str, str | None]]:
    """The texts of files, with nothing in the rows that have none."""
    for path in map(Path, paths):
        kind = _check_file(path, text_unit)
        with naming(path, kind):
            cells: Iterator[Any]
            if kind == "text":
                cells = _texts(path, text_unit)
            elif kind == "parquet":
                cells = _parquet_cells(path, column)
            else:
                cells = (row.get(column) for row in json_rows(path))
            for number, cell in enumerate(cells, 1):
                if cell is not None and not isinstance(cell, str):
                    raise UserError(
                        f"{path}, row {number} holds {str(cell)[:60]!r} in column {column!r}, where a text is wanted. "
                        f'Write it as one, e.g. {{"{column}": "a fine film"}}'
                    )
                yield {column: cell}


def _texts(path: Path, unit: TextUnit) -> Iterator[str]:
    """The rows of running text, as `datasets` splits it."""
    with open_text(path) as file:
        if unit == "line":
            for line in file:
                yield line.rstrip("\n")
        elif unit == "file":
            yield file.read()
        else:
            # Of a paragraph longer than a block the parts are joined once, at its end. The end of a line is kept for
            # the next block, with which it may make an empty line.
            parts: list[str] = []
            line_end = ""
            while block := file.read(_TEXT_BLOCK):
                first, *others = (line_end + block).split("\n\n")
                parts.append(first)
                if others:
                    yield "".join(parts)
                    yield from others[:-1]
                    parts = [others[-1]]
                line_end = "\n" if parts[-1].endswith("\n") else ""
                parts[-1] = parts[-1].removesuffix("\n")
            yield "".join([*parts, line_end])


def _parquet_cells(path: Path, column: str) -> Iterator[Any]:
    with _open_parquet(path) as file:
        for rows in file.iter_batches(_PARQUET_ROWS, columns=[column]):
            yield from rows[column].to_pylist()


@contextmanager
def _open_parquet(path: Path) -> Iterator[ParquetFile]:
    with gzip.open(path) if is_packed(path) else open(path, "rb") as content, ParquetFile(content) as file:
        yield file


def plain_texts(rows: Any) -> Any:
    """Texts of one type: pandas writes those of a parquet file as another than json lines have."""
    for name, feature in (rows.features or {}).items():
        if getattr(feature, "dtype", "") in ("large_string", "string_view"):
            rows = rows.cast_column(name, Value("string"))
    return rows


def _text_options(unit: TextUnit) -> dict[str, str]:
    """Of the reader of running text, which knows a whole file as a document."""
    return {"sample_by": "document" if unit == "file" else unit, "encoding": "utf-8-sig"}


def _check_file(path: Path, text_unit: TextUnit | None = None) -> str:
    """The format of an existing file that is not empty; of a `.txt` file "text" where it has a unit."""
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file. {_advice_on_folder(path)}")
    if not path.is_file():
        raise UserError(
            f"There is no file {path} (looked in {path.parent.resolve()}). Check the path of --train_file, "
            "--validation_file and --test_file."
        )
    suffixes = [suffix.lower() for suffix in path.suffixes]
    ending = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    if ending not in FORMATS:
        raise UserError(
            f"{path} ends in {ending or 'no suffix'!r}. Files may end in {', '.join(FORMATS)}, each also with .gz. "
            f"Rename it where it is such a file, e.g. {path.name.split('.')[0]}.jsonl, or save its rows as one (a "
            "spreadsheet as .csv)."
        )
    kind = "text" if ending == ".txt" and text_unit is not None else FORMATS[ending]
    try:
        with open_text(path) as lines:
            while block := lines.read(1 << 16):
                if block.strip():
                    return kind
    except UnicodeDecodeError:
        return kind  # parquet is not text; for the others the reader says where
    except BROKEN_GZIP as error:
        raise UserError(f"{path} is a broken or incomplete gzip file ({error}). Write it again.") from error
    raise UserError(f"{path} is empty. Write at least one row, or leave this file out of the arguments.")


def _advice_on_folder(folder: Path) -> str:
    """What to name in the place of a folder: a file in it, where there is one of a known kind."""
    rows = FORMATS.keys() - {".txt", ".json"}
    inside = sorted(path for path in folder.iterdir() if not rows.isdisjoint(map(str.lower, path.suffixes)))
    if inside:
        return f"Name a file in it, e.g. {inside[0]}"
    return (
        "Name a file of rows. Texts that lie in files of their own, a folder for each class, are to be written to one "
        'first: a line {"text": "...", "label": "..."} each, in a .jsonl'
    )


def _headless(path: Path, kind: str) -> str:
    """The format of a file whose columns are named by the user."""
    if path.name.removesuffix(".gz").lower().endswith(".txt"):
        return "tsv"
    if kind not in ("csv", "tsv", "conll"):
        raise UserError(
            f"{path} is {kind}, whose columns have their names: --column_names is for CoNLL, .csv, .tsv and .txt "
            "files without a header line. Leave it away."
        )
    return kind


__all__ = [
    "BROKEN_GZIP",
    "FORMATS",
    "TextUnit",
    "UserError",
    "conll_width",
    "fits_columns",
    "generated",
    "has_sentences",
    "has_tags",
    "is_packed",
    "is_table",
    "json_rows",
    "load_rows",
    "naming",
    "no_rows",
    "open_text",
    "plain_texts",
    "read_conll",
    "read_csv",
    "read_file",
    "read_json",
    "read_lines",
    "separator_of",
    "stream_files",
    "streamed_columns",
    "width_of",
]
