"""Documents for run_mlm.py, from files or data sets of the Hub, in memory-mapped splits or streamed."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, Value, concatenate_datasets

from ..errors import UserError, is_bug
from .columns import find_text_column
from .files import SampleBy
from .readers import read_file, stream_files, streamed_columns
from .splits import check_source, load_named, take_first


logger = logging.getLogger(__name__)
SPLITS = ("train", "validation", "test")
# Of a stream, a tokenizer is trained on this many documents by default, and holds at most this many characters.
STREAMED_FOR_TOKENIZER, CHARACTERS_FOR_TOKENIZER = 100_000, 400_000_000


@dataclass(frozen=True)
class TextData:
    """
    Documents.

    Attributes:
        splits: rows with `text_column`, without a streamed train.
        text_column: the column of the documents.
        stream: the training documents if they are streamed, else `None`.
        held_out: `fingerprint`s of the streamed documents that are held out for validation.
        label_list: empty, as there are no labels.
    """

    splits: DatasetDict
    text_column: str
    stream: IterableDataset | None = None
    held_out: frozenset[bytes] = frozenset()
    label_list: tuple[str, ...] = ()

    def training_texts(self, count: int | None) -> Iterator[str]:
        """The first `count` documents of train; for `None` all, or STREAMED_FOR_TOKENIZER of a stream."""
        rows = self.splits["train"] if self.stream is None else self.stream
        texts = documents(rows, self.text_column, self.held_out)
        if self.stream is not None and count is None:
            return at_most(texts, STREAMED_FOR_TOKENIZER, CHARACTERS_FOR_TOKENIZER)
        return itertools.islice(texts, count)


def document_of(cell: Any) -> str:
    """A cell as a document, empty if it has nothing but white space."""
    if cell is not None and not isinstance(cell, str):
        raise UserError(f"A row has {str(cell)[:60]!r}, not a text. Name the column of texts: --text_column_name text")
    return cell if cell and cell.strip() else ""


def documents(rows: Iterable[Any], column: str, held_out: frozenset[bytes] = frozenset()) -> Iterator[str]:
    """
    The documents of rows that are not empty and whose `fingerprint` is not in `held_out`.

    Raises:
        UserError: a cell is not a text, or the rows of a stream cannot be read.
    """
    count, unread = 0, iter(rows)
    while True:
        try:
            row = next(unread)
        except StopIteration:
            return
        except Exception as error:
            cause = error if isinstance(error, UserError) else error.__cause__ or error
            if is_bug(cause):
                raise
            raise UserError(
                f"{cause} (After {count:,} documents. Correct this, and resume a run: --resume_from_checkpoint last)"
            ) from error
        text = document_of(row[column])
        if text and not (held_out and fingerprint(text) in held_out):
            count += 1
            yield text


def at_most(texts: Iterator[str], count: int, characters: int) -> Iterator[str]:
    """The next `count` texts, or fewer: none after those that have this many characters together."""
    for text in itertools.islice(texts, count):
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def fingerprint(document: str) -> bytes:
    """A hash of a document, independent of its place in a stream."""
    return blake2b(document.encode(), digest_size=16).digest()


@dataclass(frozen=True)
class TextSource:
    """
    The arguments of `load_texts` and `stream_texts`.

    Attributes:
        files: split -> paths, in any format of `readers`; a `.txt` file is running text.
        sample_by: one document of a `.txt` file.
        dataset_name, dataset_config_name: as in `datasets.load_dataset`, instead of files.
        text_column_name: the column of the texts; `None`: one with a known name.
        limits: split -> maximum number of documents.
        cache_dir, token, revision: as in `datasets.load_dataset`.
    """

    files: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    sample_by: SampleBy = "line"
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    text_column_name: str | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    cache_dir: str | None = None
    token: str | None = None
    revision: str | None = None

    def named_files(self) -> dict[str, list[str]]:
        """Split -> its files; empty if a data set is named."""
        paths = {split: list(named) for split, named in self.files.items() if named}
        check_source(self.dataset_name, itertools.chain(*paths.values()))
        return paths

    def named_splits(self, **options: Any) -> dict[str, Any]:
        """The splits of the named data set."""
        options |= {"token": self.token, "revision": self.revision}
        loaded = load_named(self.dataset_name, self.dataset_config_name, **options)
        return {split: rows for split, rows in loaded.items() if split in SPLITS}


def load_texts(source: TextSource) -> TextData:
    """
    The documents of files, several per split, or of a data set.

    Raises:
        UserError: no data or both kinds are given, or they cannot be read.
    """
    paths = source.named_files()
    tables: dict[str, list[Dataset]] = {
        split: [read_file(path, source.cache_dir, source.sample_by) for path in named]
        for split, named in paths.items()
    }
    if not paths:
        tables = {split: [rows] for split, rows in source.named_splits(cache_dir=source.cache_dir).items()}
    column = source.text_column_name
    splits = {}
    for split, several in tables.items():
        for table in several:  # one after the other: an error lists the columns of one file
            column = find_text_column(DatasetDict({split: table}), column)
        rows = concatenate_datasets([_plain_texts(table.select_columns([column])) for table in several])
        kept = [index for index, cell in enumerate(rows[column]) if document_of(cell)]
        if not kept:
            raise UserError(f"The {split} split has no text in its column {column!r}.")
        rows = rows.select(kept) if len(kept) < len(rows) else rows
        splits[split] = take_first(rows, source.limits.get(split))
    return TextData(DatasetDict(splits), column)


def _plain_texts(rows: Dataset) -> Dataset:
    """Cast the large strings of pandas' parquet files to the strings of other formats."""
    for name, feature in rows.features.items():
        if getattr(feature, "dtype", "") in ("large_string", "string_view"):
            rows = rows.cast_column(name, Value("string"))
    return rows


def stream_texts(source: TextSource) -> TextData:
    """
    As `load_texts`, but the training documents are streamed.

    Without a validation split, the first documents of train, as many as its limit, are held out for validation.

    Raises:
        UserError: as in `load_texts`; there is a limit for train.
    """
    paths, limits = source.named_files(), source.limits
    if limits.get("train") is not None:
        raise UserError("--max_train_samples cannot be combined with --streaming. Use --max_steps.")
    column = source.text_column_name
    streams: dict[str, IterableDataset]
    if paths:
        for split, named in paths.items():
            for path in named:
                table = streamed_columns(path, source.sample_by, column)
                column = find_text_column(DatasetDict({split: table}), column)
        streams = {split: stream_files(named, source.sample_by, column) for split, named in paths.items()}
    else:
        streams = source.named_splits(streaming=True)
        for split, rows in streams.items():
            column = find_text_column(DatasetDict({split: Dataset.from_list(list(rows.take(1)))}), column)
    held = {split: _held(rows, column, limits.get(split)) for split, rows in streams.items() if split != "train"}
    held_out: frozenset[bytes] = frozenset()
    size = limits.get("validation")
    if "train" in streams and "validation" not in held and size is not None:
        held["validation"] = _held(streams["train"], column, size)
        held_out = frozenset(map(fingerprint, held["validation"][column][:]))
        if next(documents(streams["train"], column, held_out), None) is None:
            raise UserError(f"--max_eval_samples {size} leaves no document for training. Write a smaller number.")
        logger.warning(f"No validation split: the first {size} documents are held out (--max_eval_samples).")
    return TextData(DatasetDict(held), column, streams.get("train"), held_out)


def _held(rows: IterableDataset, column: str, count: int | None) -> Dataset:
    """The first `count` documents of a stream, all for `None`."""
    return Dataset.from_dict({column: list(itertools.islice(documents(rows, column), count))})
