"""
Tag, classify or rate texts with a saved model, or find the answer to a question in them.

    modeling-star predict outputs/quickstart/model "Maria Keller moved to Oslo."
    modeling-star predict outputs/sst2 --file texts.txt --json > predictions.jsonl
    modeling-star predict outputs/sst2 --file reviews.csv --output_file predicted.csv
    modeling-star predict outputs/sst2 --file shards/ more.csv.gz --output_file predictions.parquet
    modeling-star predict outputs/sst2 --file shards/ --output_file predictions.parquet --ray auto
    modeling-star predict outputs/sst2 --file reviews.csv --text_column_name "Review Text"
    zcat reviews.txt.gz | head -100 | modeling-star predict outputs/sst2 --file -
    modeling-star predict outputs/drcd --question "Who moved to Oslo?" "Maria Keller moved to Oslo."
    modeling-star predict outputs/snli --pairs "A man plays a guitar." "Somebody makes music."

Entities and answers come with character offsets: text[start:end] is the entity.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import LOG_LEVEL_HELP, LOG_LEVELS


if TYPE_CHECKING:
    from ..data.text_types import Text
    from ..inference.output_rows import InputColumns, Prediction, Source
    from ..inference.prediction_files import Processes
    from ..inference.saved_model import SavedModel


_SECONDS_OF_A_LINE = 30  # of progress in a file
# What people type in other programs.
_MEANT = {
    **dict.fromkeys(("--input", "--input_file", "--data", "--test_file", "--data_file"), ": did you mean --file?"),
    **dict.fromkeys(("-o", "--save", "--predictions", "--output_path"), ": did you mean --output_file?"),
    **dict.fromkeys(("--bs", "--per_device_eval_batch_size"), ": did you mean --batch_size?"),
    **dict.fromkeys(("--column", "--sentence_column"), ": did you mean --text_column_name?"),
    **dict.fromkeys(("--format",), ": the ending of --output_file is the format"),
    **dict.fromkeys(("--model", "--model_name_or_path", "--model_name"), ": write predict MODEL, without a flag"),
    **dict.fromkeys(("--recall", "--precision"), ": write --min_probability 0.1, which lists all spans above it"),
    **dict.fromkeys(("--device", "--gpu", "--cuda"), ": a GPU is used if there is one"),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model",
        help="folder or Hub name of a model for tagging, classes or answers; a folder of `export` needs no torch",
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts to predict on")
    parser.add_argument(
        "--file",
        nargs="+",
        help="files or folders of files: a column of csv, tsv, json, jsonl, parquet or CoNLL; .txt and others: one "
        "text per line; .gz, .bz2 and .zst allowed; -: standard input, one text per line",
    )
    parser.add_argument(
        "--output_file",
        type=Path,
        metavar="FILE",
        help="write to a .csv, .tsv, .jsonl or .parquet file instead of printing: the columns of the --file, and "
        "beside them label and score, or entities; the same command resumes an interrupted run, and `accelerate "
        "launch` divides the texts among its processes",
    )
    parser.add_argument(
        "--text_column_name",
        metavar="NAME",
        help="its column of texts; of pairs two, joined by a comma (default: as in training, or a usual name: tokens, "
        "text, sentence, review, ...)",
    )
    parser.add_argument(
        "--column_names",
        metavar="NAMES",
        help="columns of a csv or tsv without a header line: text,id; of CoNLL in their order: _,tokens,_",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="classify pairs: every two TEXTs, two columns of a file, or two texts per line, separated by a tab",
    )
    parser.add_argument(
        "--question",
        help="the question that is answered from every text (default: that of each row, of a --file with columns of "
        "questions and contexts)",
    )
    parser.add_argument(
        "--null_threshold",
        type=float,
        metavar="X",
        help="predict no answer where its score exceeds the best answer's by more; inf: always answer (default: as "
        "the model was evaluated)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="of several labels per text, predict those with a higher probability (default: 0.5)",
    )
    parser.add_argument(
        "--min_probability",
        type=float,
        metavar="X",
        help="list all spans that are entities with at least this probability, overlapping ones too",
    )
    parser.add_argument(
        "--n_best", type=int, metavar="N", help="list the N most probable spans of each text, overlapping ones too"
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="predict with all free GPUs, or CPUs, of a Ray cluster, and write the same --output_file; its machines "
        "share the folder of the model. local: start one on this machine; auto: the one that runs here",
    )
    parser.add_argument("--batch_size", type=int, default=128, help="most texts predicted at once (default: 128)")
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="precision (default: auto, that of the saved weights, and compiled layers in bfloat16 where the CPU "
        "has it: scores differ from float32's in the third digit)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per text; its index is the row of the --file, from 0: rows without text are "
        "omitted",
    )
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code in the model's folder")
    parser.add_argument("--log_level", choices=LOG_LEVELS, default="passive", help=LOG_LEVEL_HELP)
    arguments, unknown = parser.parse_known_intermixed_args()  # a question may come before the texts
    if unknown:
        parser.error(f"there is no {unknown[0]}{_MEANT.get(unknown[0].partition('=')[0], '')}")
    if arguments.texts == ["-"] and arguments.file is None:  # what other programs mean by it
        arguments.texts, arguments.file = [], ["-"]
    for number, text in enumerate(arguments.texts, start=1):
        if not text.strip() or text == "-":
            line = "write --file - for standard input" if text == "-" else "omit it, or write a text with words"
            parser.error(f"TEXT {number} is {text!r}: {line}")
    if not arguments.texts and arguments.file is None:
        parser.error('there is no text: write predict MODEL "A text." or --file texts.txt')
    if arguments.output_file is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        parser.error("several processes need --output_file predictions.jsonl")
    if arguments.ray is not None and (arguments.output_file is None or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        parser.error("--ray needs --output_file predictions.jsonl, and one process: omit `accelerate launch`")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "-" in (arguments.file or []):
        parser.error("several processes cannot share standard input: name a file")
    if arguments.file is None and (arguments.text_column_name or arguments.column_names):
        parser.error("--text_column_name and --column_names need --file")
    for text in filter(os.path.isfile, arguments.texts):
        parser.error(f"{text} is a file: write --file {text} to read the texts in it")
    if arguments.pairs and len(arguments.texts) % 2:
        parser.error(f"--pairs takes two TEXTs each, and {len(arguments.texts)} are given")
    return arguments


def main() -> None:
    """Read the arguments, predict, print or write."""
    arguments = parse_arguments()
    check_packages(arguments)

    from ..inference.prediction_files import Processes
    from ..runs.cli_errors import command_messages

    processes = Processes.of_environment()
    command, output = Path(sys.argv[0]).name, arguments.output_file
    options = {"log_level": arguments.log_level, "is_main": processes.index == 0}
    try:
        with command_messages(command, output, next_time=lambda: _next_time(output), **options):
            predict(arguments, processes)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it exits
        sys.exit(1)


def check_packages(arguments: argparse.Namespace) -> None:
    """
    Raises:
        SystemExit: names all packages that a model and its files need and that are not installed.
    """
    model = arguments.model
    is_exported = model.endswith(".onnx") or os.path.isfile(os.path.join(model, "model.onnx"))
    needed = ["numpy", "regex", "tokenizers", *(["onnxruntime"] if is_exported else ["torch", "transformers"])]
    if any(str(path).endswith(".parquet") for path in (*(arguments.file or ()), arguments.output_file)):
        needed.append("pyarrow")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        named = model if os.path.exists(model) else f"{model}, which is no folder in {os.getcwd()},"
        raise SystemExit(
            f"{Path(sys.argv[0]).name}: {named} needs {' and '.join(missing)}: write pip install {' '.join(missing)}"
        )


def predict(arguments: argparse.Namespace, processes: "Processes") -> None:
    """Check everything that is given, then load the model, predict, print or write."""
    from ..inference.output_rows import as_json, check_output, rounded
    from ..inference.prediction import Predictor
    from ..inference.prediction_files import output_columns, predict_parts, predict_to_file, predict_windows
    from ..inference.saved_model import outline

    output = arguments.output_file
    if output is not None and processes.index == 0:  # another process may come when all is written
        check_output(output)
    # Options, files and columns are refused before transformers is imported, which takes seconds.
    model = outline(arguments.model) or load_saved(arguments.model, arguments.trust_remote_code)
    if arguments.file and not arguments.texts and model.takes_pairs:
        arguments.pairs = True
    names = ("pairs", "question", "null_threshold", "threshold", "min_probability", "n_best", "batch_size", "dtype")
    options = {name: getattr(arguments, name) for name in names}
    predictor = Predictor(model, **options)
    rows, inputs, total = read_rows(model, arguments)
    quiet: AbstractContextManager[None] = nullcontext()
    if model.onnx is None:
        from ..loading import quiet_transformers

        predictor = Predictor(load_saved(arguments.model, arguments.trust_remote_code), **options)
        quiet = quiet_transformers(arguments.log_level, downloads=True)
    by = predict_parts
    if arguments.ray is not None:
        from ..inference.ray_cluster import connect, predict_on_ray

        connect(arguments.ray)
        by = predict_on_ray
    with quiet, progress_bar(arguments, total, processes.index) as (progress, without_bar):
        if output is not None:
            given = {name: vars(arguments)[name] for name in ("texts", "file", "text_column_name", "column_names")}
            count = predict_to_file(predictor, rows, output, given, progress, inputs, predict=by)
        else:
            columns = output_columns(predictor, inputs, ".jsonl") if arguments.json else None
            for window in predict_windows(predictor, rows):
                with without_bar():
                    for source, text, found in window:
                        print(as_json(columns.row(source, text, found)) if columns else as_lines(text, rounded(found)))
                    sys.stdout.flush()
                progress(len(window))
    predictor.warn_about_cuts()
    if output is not None and processes.index == 0:
        print(f"{count:,} rows written to {output}")


def load_saved(name: str, trust_remote_code: bool) -> "SavedModel":
    """What is known of a model without its weights."""
    from ..inference.saved_model import SavedModel
    from ..training.named_models import loading  # imports transformers

    with loading("MODEL", name):
        return SavedModel.load(name, trust_remote_code)


def _next_time(output: Path | None) -> str:
    """What the same command does after it was interrupted."""
    from ..inference.output_rows import parts_of

    if output is None:
        return "The same command starts from the beginning; with --output_file predictions.jsonl it would continue."
    if output.exists() or not parts_of(output).exists():
        return "Nothing was written: the same command starts from the beginning."
    return f"{parts_of(output)} is kept: the same command continues from there."


def read_rows(
    model: "SavedModel", arguments: argparse.Namespace
) -> "tuple[Iterator[tuple[Source, Text]], list[InputColumns], int | None]":
    """The TEXTs and those of the files with their sources, the columns of these, and about the number of texts."""
    from ..inference.output_rows import InputColumns, Source

    typed = arguments.texts
    texts: list[Text] = list(zip(typed[::2], typed[1::2], strict=True)) if arguments.pairs else typed
    if not arguments.file:
        return ((Source(), text) for text in texts), [InputColumns()], len(texts)

    from ..data.prediction_inputs import Texts, count_rows, data_files, open_texts

    files = data_files(arguments.file)
    trained = model.arguments

    def opened(path: str) -> Texts:
        return open_texts(
            path,
            pairs=arguments.pairs,
            contexts=arguments.question is not None,
            questions=model.task == "question-answering" and arguments.question is None and not arguments.pairs,
            tags=model.task == "token-classification",
            text_column_name=arguments.text_column_name,
            column_names=split_names(arguments.column_names),
            trained_on=trained.get("text_column_name") or trained.get("source_column"),
            trained_columns=split_names(trained.get("column_names")),
        )

    # Every file is opened now, so that one that cannot be read is named before a model is loaded; several are read
    # from their beginning again, so that few are open at once.
    one = {path: opened(path) for path in files[:1]} if len(files) == 1 else {}
    inputs = [InputColumns()] if texts else []
    for path in files:
        file = one.get(path) or opened(path)
        inputs.append(InputColumns(file.columns, file.plain, is_file=True))

    def read() -> "Iterator[tuple[Source, Text]]":
        for text in texts:
            yield Source(), text
        for path in files:
            for index, text, cells in (one.pop(path, None) or opened(path)).rows:
                yield Source(index, path if len(files) > 1 else None, cells), text

    counts = [count_rows(path) for path in files]
    return read(), inputs, None if None in counts else sum(counts) + len(texts)


@contextmanager
def progress_bar(
    arguments: argparse.Namespace, total: int | None, process: int
) -> Iterator[tuple[Callable[[int], Any], Callable[[], AbstractContextManager[Any]]]]:
    """
    Texts per second and the remaining time, on standard error, unless the predictions are printed in a terminal. In a
    terminal after a second, in a file every half a minute.

    Returns:
        What takes the number of texts that are done, and a context in which the bar is hidden; it is for the log too.
    """
    if process != 0 or not arguments.file or (arguments.output_file is None and sys.stdout.isatty()):
        yield lambda texts: None, nullcontext
        return
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    if sys.stderr.isatty():
        with tqdm(total=total, unit=" texts", delay=1) as bar, logging_redirect_tqdm():
            yield bar.update, tqdm.external_write_mode
        return
    done, began = 0, time.monotonic()
    latest = began

    def progress(texts: int) -> None:
        nonlocal done, latest
        done, now = done + texts, time.monotonic()
        if now - latest > _SECONDS_OF_A_LINE:
            latest = now
            print(tqdm.format_meter(done, total, now - began, unit=" texts", ncols=0), file=sys.stderr, flush=True)

    yield progress, nullcontext


def split_names(names: str | None) -> list[str] | None:
    """tokens,tags -> ["tokens", "tags"]"""
    return names.split(",") if names else None


def as_lines(text: "Text", found: "list[Prediction]") -> str:
    """The text, and below it a line for each prediction."""
    lines = [text if isinstance(text, str) else "\n".join(text)]
    for entry in found:
        if "value" in entry:
            lines.append(f"    {entry['value']:.4g}")
        elif "score" not in entry:
            lines.append(f"    {entry['text']}")
        else:
            span = f"{entry['start']:>4}-{entry['end']:<4} {entry['text']!r} " if "start" in entry else ""
            label = f"{entry['label']} " if "label" in entry else ""
            if "predicted" in entry:
                label = ("* " if entry["predicted"] else "  ") + label
            lines.append(f"    {span}{label} {entry['score']:.2f}")
    return "\n".join(lines if found else [*lines, "    (nothing)"])
