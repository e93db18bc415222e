"""
The arguments of the training commands, one dataclass for each group of flags; `commands/parser.py` reads them.

This file imports nothing heavy, so that `--help` answers at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast


def flag(help: str, default: Any = None, **metadata: Any) -> Any:
    """A dataclass field with its help text, and other metadata that argparse reads."""
    metadata["help"] = help
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


_TYPES = "star_transformer, big_transformer, vanilla_transformer, disan or bilstm"


@dataclass
class ModelArguments:
    """Model, tokenizer and embeddings."""

    _argument_group_name = "model, tokenizer and embeddings"
    ignore_mismatched_sizes = False  # flags of the scripts whose data have labels
    pretrained = cast("str | None", None)
    layers = cast("list[int] | None", None)

    model_name_or_path: str | None = flag("Saved model to fine-tune; it replaces a recipe's new model.")
    model_type: str | None = flag(f"Type of a new model: {_TYPES}, in the paper's form.")
    config_name: str | None = flag(
        "Configuration of a new model: a file, or a name such as star-base, the paper's form; without it or "
        "--model_type, star-plus-2."
    )
    config_overrides: str | None = flag("Configuration fields to set, such as hidden_size=192,use_crf=false.")
    tokenizer_name: str | None = flag("Tokenizer, if not the model's; without any, one is trained on the data.")
    tokenizer_kind: Literal["word", "wordpiece", "character"] = flag(
        "Kind of a trained tokenizer: character suits Chinese, word suits word vectors.", "word"
    )
    lower_case: bool = flag("Lower-case the text in a trained tokenizer.", True)
    vocab_size: int = flag("Maximum vocabulary size of a trained tokenizer.", 30000)
    embeddings_name_or_path: str | None = flag("Embeddings of a new model: a BERT or a file of word vectors.")
    embeddings_mode: Literal["static", "contextual", "vectors"] = flag(
        "Use a BERT's word embeddings (static), a BERT's output (contextual), or a file of word vectors (vectors).",
        "static",
    )
    vocabulary_from: Literal["data", "vectors"] = flag(
        "Where a trained tokenizer takes its words from: the training split, or also the file of vectors.", "data"
    )
    lexicon: str | None = flag("Words for big_transformer: a file with one word per line, jieba, or whole_word.")
    word_vectors: str | None = flag(
        "File of word vectors, such as Chinese ones: those of the words around a token join its embedding."
    )
    freeze_embeddings: bool = flag("Do not train the embeddings.", False)
    model_revision: str = flag("Branch, tag or commit of the model on the Hub.", "main")
    trust_remote_code: bool = flag("Run the code that a saved model ships.", False)

    @property
    def encoder(self) -> str | None:
        """What all layers begin with: a saved model or a pretrained encoder; `None`: a new model."""
        return self.model_name_or_path or self.pretrained

    @property
    def source(self) -> str | None:
        """What any weights begin with: those of an encoder, or embeddings."""
        return self.encoder or self.embeddings_name_or_path


@dataclass
class LabelModelArguments(ModelArguments):
    """Model, tokenizer and embeddings where data have labels."""

    pretrained: str | None = flag(
        "BERT, RoBERTa, DistilBERT, ELECTRA, MiniLM ... to convert (docs/convert.md) and fine-tune, with other "
        "defaults of the training."
    )
    layers: list[int] | None = flag("With --pretrained: the layers that are taken, such as 0 2 4; without it, all.")
    ignore_mismatched_sizes: bool = flag("Replace a head whose size differs from the data's labels.", False)


@dataclass
class ClassificationModelArguments(LabelModelArguments):
    """Model, tokenizer and embeddings of a classifier."""

    model_type: str | None = flag(f"Type of a new model: {_TYPES}, in the paper's form, or tfidf.")


@dataclass
class TaggingModelArguments(LabelModelArguments):
    """Model, tokenizer and embeddings of a tagger."""

    # Entities are often rare words: subwords and capitals say something about them.
    tokenizer_kind: Literal["word", "wordpiece", "character"] = flag(
        "Kind of a trained tokenizer: character suits Chinese, word suits word vectors.", "wordpiece"
    )
    lower_case: bool = flag("Lower-case the text in a trained tokenizer.", False)
    vocab_size: int = flag("Maximum vocabulary size of a trained tokenizer.", 8000)


@dataclass
class DataArguments:
    """Data of any script."""

    _argument_group_name = "data"

    dataset_name: str | None = flag("Data set on the Hub, or a folder, in place of files.")
    dataset_config_name: str | None = flag("Configuration of the data set.")
    dataset_revision: str | None = flag("Branch, tag or commit of the data set.")
    dataset_title: str | None = flag("Name of the data on the model card; write synthetic for generated data.")
    train_file: str | None = flag("Training file: json, jsonl, csv, tsv or parquet, .gz allowed.")
    validation_file: str | None = flag("Validation file, which chooses the best model.")
    test_file: str | None = flag("Test file, which is scored at the end.")
    validation_fraction: float = flag("Fraction of train held out if there is no validation split.", 0.1)
    max_seq_length: int | None = flag("Maximum number of tokens of an input; without it, the model's.")
    max_train_samples: int | None = flag("Use only the first N training examples.")
    max_eval_samples: int | None = flag("Use only the first N validation examples.")
    max_predict_samples: int | None = flag("Use only the first N test examples.")
    card_examples: bool = flag(
        "Show texts of the test or validation split on the model card, which is published with the model.", False
    )


@dataclass
class FileArguments(DataArguments):
    """Data in tables, one example per row."""

    column_names: str | None = flag("Columns of a file without header, such as label,text; _ skips one.")
    drop_empty: bool = flag("Skip empty rows with a warning instead of stopping.", False)


@dataclass
class TeacherArguments(FileArguments):
    """Data with classes, and the teacher of a student."""

    teacher: str | None = flag("Fine-tuned model to learn from, a Hub name or a folder, with the data's labels.")
    unlabeled_file: list[str] | None = flag(
        "With --teacher: unlabelled texts, txt with one per line, json, jsonl, csv, tsv, parquet or CoNLL."
    )
    loss: Literal["mse", "kl"] | None = flag(
        "With --teacher: mse of the logits, the default, or kl of the distributions, which a CRF needs."
    )
    temperature: float = flag("With --teacher: temperature of --loss kl.", 2.0)
    alpha: float = flag("With --teacher: weight of the labels in the loss of labelled texts.", 0.0)
    augment: int = flag("With --teacher: copies of each labelled text with masked words or as a part.", 0)
    teacher_batch_size: int = flag("Texts per batch of the teacher.", 64)
    teacher_cache: str | None = flag("Folder of the teacher's outputs; without it, one in the cache of datasets.")


STUDENT = ("unlabeled_file", "loss", "temperature", "alpha", "augment")
"""The arguments that only a student has."""


@dataclass
class TaggingArguments(TeacherArguments):
    """Data of a tagger."""

    train_file: str | None = flag("Training file: json, jsonl, csv, tsv, parquet or CoNLL, .gz allowed.")
    text_column_name: str | None = flag("Column of the words; without it, a known name such as tokens.")
    label_column_name: str | None = flag("Column of the tags; without it, a known name such as ner_tags.")
    stride: int | None = flag("Overlap in tokens of the windows of a long input; without it, training truncates.")
    nested_entities: Literal["outermost", "innermost"] = flag(
        "Entities that are learned where a column of spans of words has some within others.", "outermost"
    )


@dataclass
class ClassificationArguments(TeacherArguments):
    """Data of a classifier."""

    task_name: str | None = flag("GLUE task, which sets columns and metrics: cola, sst2, mrpc, stsb, ...")
    text_column_name: str | None = flag("Column of the texts, or two for pairs, separated by a comma.")
    label_column_name: str | None = flag("Column of the labels, or several 0/1 columns separated by commas.")
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = flag(
        "Kind of the labels; write multi_label_classification if a cell holds several separated by a comma, | or ;."
    )
    tfidf_vote: bool | None = flag(
        "true: an encoder is trained, and TF-IDF votes with it; false: an encoder alone. By default TF-IDF alone "
        "where no model, shape or embeddings are named; with --pretrained what is best on held-out texts; a saved "
        "model keeps what it has, fitted to the new texts."
    )
    tfidf_baseline: bool = flag("Compare with TF-IDF and logistic regression, fitted in seconds.", True)

    def __post_init__(self) -> None:
        if self.task_name and not (self.dataset_name or self.train_file or self.validation_file or self.test_file):
            self.dataset_name, self.dataset_config_name = "nyu-mll/glue", self.task_name


@dataclass
class ReadingArguments(DataArguments):
    """Data of question answering."""

    train_file: str | None = flag("Training file: SQuAD's json, or json, jsonl or parquet with one question per row.")
    drop_empty: bool = flag("Skip empty rows with a warning instead of stopping.", False)
    text_column_name: str | None = flag("Columns of question and context, separated by a comma.")
    label_column_name: str | None = flag('Column of the answers, {"text": [...], "answer_start": [...]}.')
    doc_stride: int = flag("Overlap in tokens of the windows of a long context.", 128)
    n_best_size: int = flag("Number of answers per question in the predictions.", 20)
    max_answer_length: int = flag("Maximum number of tokens of a predicted answer.", 30)
    version_2_with_negative: bool = flag("Some questions have no answer, as in SQuAD 2.0.", False)
    null_score_diff_threshold: float = flag(
        "Predict no answer if the score of none exceeds that of the best answer by more than this.", 0.0
    )
    answer_language: Literal["en", "zh"] | None = flag(
        "Compare answers by words (en, as SQuAD) or by Chinese characters (zh, as CMRC 2018); without it, detected."
    )


@dataclass
class TextArguments(DataArguments):
    """Data of masked language modelling: running text."""

    train_file: list[str] | None = flag(  # type: ignore[assignment]  # several files of each split
        "Training files: txt, json, jsonl, csv, tsv or parquet, .gz allowed."
    )
    validation_file: list[str] | None = flag("Validation files.")  # type: ignore[assignment]
    test_file: list[str] | None = flag("Test files.")  # type: ignore[assignment]
    validation_fraction: float = flag("Fraction of train held out if there is no validation split.", 0.05)
    max_seq_length: int = flag("Number of tokens of a block; longer documents are split.", 512)
    sample_by: Literal["line", "paragraph", "file"] = flag("Document of a .txt file.", "line")
    text_column_name: str | None = flag("Column of the texts in other files; without it, a known name such as text.")
    packing: bool = flag("Pack several documents into a block; false pads each document.", True)
    mlm_probability: float = flag("Fraction of the tokens to mask.", 0.15)
    mask_unit: str = flag("Unit of masking: token, whole_word, jieba, or a file with one word per line.", "token")
    max_tokenizer_samples: int | None = flag("Documents to train a tokenizer on; without it all.")


@dataclass
class RunArguments:
    """The run."""

    _argument_group_name = "run"
    class_weights = "none"  # flags of the scripts whose data have classes
    max_tokens_per_batch = cast("int | None", None)
    # Whether the user wrote --load_best_model_at_end false; TrainingArguments cannot tell it from the default.
    takes_last = False
    # Whether the user wrote --save_total_limit; without it the checkpoints are removed when the run is finished.
    keeps_checkpoints = False
    # With so many updates at least, where the user sets neither epochs nor steps of --pretrained.
    fewest_updates = 0
    typed: ClassVar[Sequence[str]] = ()
    """The command line of a command of this package, for the card; nothing where another program trains."""

    seeds: list[int] | None = flag("Several seeds in one call, reported with mean and deviation: --seeds 1 2 3.")
    encoder_learning_rate: float | None = flag(
        "Learning rate of what is pretrained: a saved model but for a new head, or the BERT of --embeddings_mode "
        "contextual; without it, --learning_rate."
    )
    layerwise_lr_decay: float | None = flag(
        "Factor of the learning rate from each pretrained layer to the one below it; the embeddings are the lowest."
    )
    early_stopping_patience: int | None = flag("Stop after N evaluations without a better score.")
    average_checkpoints: int = flag("Average the weights of the last N checkpoints; 0 takes the best one.", 0)
    shuffle_length_groups: bool = flag("Shuffle length-grouped batches; false keeps Trainer's order.", True)


@dataclass
class LabelRunArguments(RunArguments):
    """The run, on data with classes."""

    class_weights: str = flag("Weights of the classes in the loss: none, balanced, or one number per class.", "none")
    max_tokens_per_batch: int | None = flag(
        "Most tokens of a training batch, padding included: batches of texts of like length, each of at most "
        "--per_device_train_batch_size texts."
    )
    calibrate: bool = flag("Fit the temperature of probabilities on the validation split after the training.", True)


# Old names, accepted on the command line, in recipes and in the arguments of earlier runs.
RENAMED = {"embeddings_from": "embeddings_name_or_path", "text_unit": "sample_by"}


def current_names(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with old names replaced by the current ones."""
    return {RENAMED.get(name, name): value for name, value in arguments.items()}
