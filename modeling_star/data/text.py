"""Running text for run_mlm.py: files or Hub names -> documents, held as a whole or streamed."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, concatenate_datasets

from ..errors import UserError
from .columns import find_text_column
from .readers import TextUnit, plain_texts, read_file, stream_files, streamed_columns
from .splits import load_named, take_first, with_validation_name


logger = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
# A stream has no end to wait for: so many of its documents a tokenizer is trained on unless told otherwise, and no
# more than have so many characters, which are held at once.
STREAMED_FOR_TOKENIZER, CHARACTERS_FOR_TOKENIZER = 100_000, 400_000_000


@dataclass(frozen=True)
class TextData:
    """Documents.

    Attributes:
        splits: rows with `text_column`; all but a streamed train are held as a whole.
        text_column: the column of the documents.
        stream: the training documents where they are streamed, else `None`, and `splits` has them.
        held_out: `fingerprint`s of streamed documents that are left to validation.
        label_list: empty: there are no labels, and the scripts ask for them.
    """

    splits: DatasetDict
    text_column: str
    stream: IterableDataset | None = None
    held_out: frozenset[bytes] = frozenset()
    label_list: tuple[str, ...] = ()

    def training_texts(self, count: int | None) -> Iterator[str]:
        """The first `count` documents of the training split; all for `None`, of a stream STREAMED_FOR_TOKENIZER."""
        rows = self.splits["train"] if self.stream is None else self.stream
        texts = documents(rows, self.text_column, self.held_out)
        if self.stream is not None and count is None:
            return at_most(texts, STREAMED_FOR_TOKENIZER, CHARACTERS_FOR_TOKENIZER)
        return itertools.islice(texts, count)


def document_of(cell: Any) -> str:
    """A cell as a document: empty where there is nothing but white space in it.

    Raises:
        UserError: it is something else than a text.
    """
    if cell is None:
        return ""
    if not isinstance(cell, str):
        raise UserError(
            f"A row holds {str(cell)[:60]!r}, and a text is wanted. Name the column of texts: --text_column_name text"
        )
    return cell if cell.strip() else ""


def documents(rows: Iterable[Any], column: str, held_out: frozenset[bytes] = frozenset()) -> Iterator[str]:
    """The documents of some rows, without empty ones and those whose `fingerprint` is among `held_out`.

    Raises:
        UserError: a cell is no text, or the rows break off, where they are read meanwhile.
    """
    count, unread = 0, iter(rows)
    while True:
        try:
            row = next(unread)
        except StopIteration:
            return
        except Exception as error:
            # The reader's own words, which may be one level down.
            reason = str(error if isinstance(error, UserError) else error.__cause__ or error) or type(error).__name__
            raise UserError(
                f"{reason} (After {count:,} documents. Once that is mended, a run that was in training goes on: "
                "--resume_from_checkpoint last)"
            ) from error
        text = document_of(row[column])
        if text and not (held_out and fingerprint(text) in held_out):
            count += 1
            yield text


def at_most(texts: Iterator[str], count: int, characters: int) -> Iterator[str]:
    """The next `count` texts, or fewer: none comes after they have so many characters together."""
    for text in itertools.islice(texts, count):
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def fingerprint(document: str) -> bytes:
    """What tells a document from another, wherever in a stream it comes."""
    return blake2b(document.encode(), digest_size=16).digest()


@dataclass(frozen=True)
class TextSource:
    """What text there is.

    Attributes:
        files: split -> paths; of any format that `read_file` knows, a `.txt` file being running text.
        text_unit: what a document is in a `.txt` file.
        dataset_name, dataset_config_name: as in `datasets.load_dataset`, in the place of files.
        text_column_name: the column of the texts; None: found.
        limits: split -> most documents of it.
        cache_dir, token, revision: as in `datasets.load_dataset`.
    """

    files: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    text_unit: TextUnit = "line"
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    text_column_name: str | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    cache_dir: str | None = None
    token: str | None = None
    revision: str | None = None

    def named_files(self) -> dict[str, list[str]]:
        """The files that were named, and not a data set beside them.

        Raises:
            UserError, UserError: both were named, or none.
        """
        paths = {split: list(named) for split, named in self.files.items() if named}
        if self.dataset_name and paths:
            raise UserError(
                f"Both the data set {self.dataset_name!r} and files ({', '.join(itertools.chain(*paths.values()))}) "
                "were given. Write either --dataset_name or --train_file, --validation_file and --test_file."
            )
        if not self.dataset_name and not paths:
            raise UserError("No data was given. Write --dataset_name NAME, or --train_file a.txt b.jsonl.gz")
        return paths

    def named_splits(self, **options: Any) -> dict[str, Any]:
        """The splits of the data set that was named."""
        loaded = load_named(
            self.dataset_name, self.dataset_config_name, token=self.token, revision=self.revision, **options
        )
        return {split: rows for split, rows in with_validation_name(loaded).items() if split in SPLITS}


def load_texts(source: TextSource) -> TextData:
    """The documents of files, several a split, or of a data set of the Hub (or a local folder).

    Raises:
        UserError: nothing was named, or it is absent, empty or out of reach.
        UserError: both kinds were named, or a file's content is not of its format.
    """
    paths = source.named_files()
    tables: dict[str, list[Dataset]]
    if paths:
        tables = {
            split: [read_file(path, source.cache_dir, source.text_unit) for path in named]
            for split, named in paths.items()
        }
    else:
        tables = {split: [rows] for split, rows in source.named_splits(cache_dir=source.cache_dir).items()}
    column = source.text_column_name
    for split, several in tables.items():
        # Of every file alone, so that an error lists the columns of the one that lacks it.
        for table in several:
            column = find_text_column(DatasetDict({split: table}), column)
    splits = {}
    for split, several in tables.items():
        rows = concatenate_datasets([plain_texts(table.select_columns([column])) for table in several])
        splits[split] = take_first(_without_empty(split, rows, column), source.limits.get(split))
    return TextData(DatasetDict(splits), column)


def stream_texts(source: TextSource) -> TextData:
    """As `load_texts`, but the training documents are read while they are used.

    Validation and test documents are held as a whole. Without a validation split, the first documents of train, as
    many as `source.limits` says, are left to validation, and never trained on.

    Raises:
        UserError, UserError: as in `load_texts`; `source.limits` has an entry for train.
    """
    paths, limits = source.named_files(), source.limits
    if limits.get("train") is not None:
        raise UserError("--max_train_samples has no use with --streaming: --max_steps says how much is read.")
    column = source.text_column_name
    streams: dict[str, IterableDataset]
    if paths:
        for split, named in paths.items():
            for path in named:
                table = streamed_columns(path, source.text_unit, column)
                column = find_text_column(DatasetDict({split: table}), column)
        streams = {split: stream_files(named, source.text_unit, column) for split, named in paths.items()}
    else:
        streams = source.named_splits(streaming=True)
        for split, rows in streams.items():
            column = find_text_column(DatasetDict({split: Dataset.from_list([_first_row(split, rows)])}), column)
    held = {split: _held(rows, column, limits.get(split)) for split, rows in streams.items() if split != "train"}
    held_out: frozenset[bytes] = frozenset()
    size = limits.get("validation")
    if "train" in streams and "validation" not in held and size is not None:
        held["validation"] = _held(streams["train"], column, size)
        held_out = frozenset(map(fingerprint, held["validation"][column][:]))
        if next(documents(streams["train"], column, held_out), None) is None:
            raise UserError(f"--max_eval_samples {size} leaves no document to train on: write a smaller number.")
        logger.warning(f"No validation split: the first {size} documents are left to it (--max_eval_samples).")
    return TextData(DatasetDict(held), column, streams.get("train"), held_out)


def _without_empty(split: str, rows: Dataset, column: str) -> Dataset:
    """The rows with something in them.

    Raises:
        UserError: there is none.
    """
    kept = [index for index, cell in enumerate(rows[column]) if document_of(cell)]
    if not kept:
        raise UserError(f"The {split} split has no text in its column {column!r}.")
    if len(kept) < len(rows):
        logger.info(f"{len(rows) - len(kept):,} of {len(rows):,} rows of the {split} split are empty.")
        rows = rows.select(kept)
    return rows


def _first_row(split: str, rows: IterableDataset) -> dict[str, Any]:
    """The first row of a stream.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return next(iter(rows))
    except StopIteration:
        raise UserError(f"The {split} split holds no rows.") from None
    except Exception as error:
        # The reader's own words, one level down.
        raise UserError(f"The {split} split could not be read: {error.__cause__ or error}") from error


def _held(rows: IterableDataset, column: str, count: int | None) -> Dataset:
    """The first `count` documents of a stream, all for None."""
    return Dataset.from_dict({column: list(itertools.islice(documents(rows, column), count))})


__all__ = ["TextData", "TextSource", "at_most", "documents", "fingerprint", "load_texts", "stream_texts"]
