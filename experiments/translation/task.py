"""The task of run_translation.py: a text in another language for every text."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from torch import Tensor, nn
from transformers import (
    DataCollator,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    TrainingArguments,
)
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput

from modeling_star.data.writing_systems import language_of
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import markdown_table
from modeling_star.files import write_json_lines
from modeling_star.models.modeling_encoder import longest_input
from modeling_star.publish.model_card import FAMILIES, TITLES, USAGE
from modeling_star.training.arguments import ModelArguments, RunArguments
from modeling_star.training.build import (
    check_vocabulary,
    load_tokenizer,
    make_model,
    set_lexicon,
    set_vocabulary,
    tokenizer_name,
    tokenizer_texts,
)
from modeling_star.training.losses import MetricsWithLoss, TaskLoss
from modeling_star.training.named_models import parse_overrides
from modeling_star.training.task import Task, first_rows
from modeling_star.training.trainer import StarTrainer

from .arguments import TranslationArguments
from .builders import fresh_translator, set_generation
from .generation import generate_translations
from .modeling_encoder_decoder import TextEncoderDecoderModel
from .parallel_text import SOURCE, TARGET, TranslationData, encode_translations, prepare_translation
from .scores import TranslationMetrics, bleu_signature
from .subwords import train_subword_tokenizer


logger = logging.getLogger(__name__)

_CARD_EXAMPLES = 8


class TranslationTrainer(StarTrainer, Seq2SeqTrainer):
    """Seq2SeqTrainer with the additions of `StarTrainer`, exact losses, and translations limited by their sources."""

    num_beams: int = 1
    max_extra_tokens: int = 50
    smoothing: float = 0.0
    # Without the label smoothing of training.
    exact_loss = TaskLoss("translation")
    _generates: bool = True

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in Seq2SeqTrainer; without `predict_with_generate`, the loss alone."""
        self._generates = self.args.predict_with_generate
        return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> PredictionOutput:
        """As in Seq2SeqTrainer, with `num_beams`; `generation_max_length` is for evaluations while training."""
        self._generates = True
        return super().predict(*args, **{"num_beams": self.num_beams, "max_length": sys.maxsize, **kwargs})

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """As in Trainer; Seq2SeqTrainer counts rows twice where processes do not share them evenly."""
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[None, Any, Tensor | None]:
        """No loss; ids `[b, m]` and, where there are labels, losses and numbers of labels `[b, 2]`; the labels."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels", None)
        source = {name: x for name, x in inputs.items() if name not in ("decoder_input_ids", "decoder_attention_mask")}
        with torch.no_grad(), self.compute_loss_context_manager():
            if self._generates:
                options = {**self._gen_kwargs, **gen_kwargs}
                options = {name: value for name, value in options.items() if value is not None}
                ids = generate_translations(self.model, source, self.max_extra_tokens, **options)
            else:
                ids = inputs["input_ids"][:, :0]
            if labels is None:
                return None, ids, None
            return None, (ids, self.exact_loss.rows(model(**inputs).logits, labels)), labels


class TranslationTask(Task[TranslationArguments]):
    """Predict a text in another language for every text."""

    head = "AutoModelForSeq2SeqLM"
    pipeline = "translation"
    trainer_class = TranslationTrainer
    held_out_together = SOURCE  # a text may have several translations
    data_args: TranslationArguments
    data: TranslationData
    metrics: TranslationMetrics

    def __init__(self, model_args: ModelArguments, data_args: TranslationArguments, run_args: RunArguments):
        super().__init__(model_args, data_args, run_args)
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self.model: PreTrainedModel | None = None
        self.limits: dict[str, int | None] = {}
        self.decoder_start: int | None = None

    @classmethod
    def check_arguments(cls, data_args: TranslationArguments, training: TrainingArguments) -> None:
        """As in `Task`; without `predict_with_generate` the best model is that of the lowest loss."""
        if not training.predict_with_generate:
            chosen = training.metric_for_best_model or "loss"
            if chosen.removeprefix("eval_") != "loss":
                raise UserError(f"--metric_for_best_model {chosen} is not measured: write --predict_with_generate.")
            training.metric_for_best_model = chosen

    def prepare(self, splits: DatasetDict) -> TranslationData:
        options = self.data_args
        return prepare_translation(
            first_rows(splits, options),
            source_column=options.source_column,
            target_column=options.target_column,
            drop_empty=options.drop_empty,
        )

    def describe(self) -> None:
        self.metrics = TranslationMetrics(self.data_args.bleu_tokenize or ("zh" if self.data.is_chinese() else "13a"))
        self.labels = {}
        self.input_columns = (SOURCE,)
        self.saved_options = {"max_extra_tokens": self.data_args.max_extra_tokens}
        train = self.data.splits.get("train", {SOURCE: [], TARGET: []})
        self.languages = [language_of(train[SOURCE]), language_of(train[TARGET])]

    def training_texts(self) -> Iterator[str]:
        train = self.data.splits["train"]
        return (text for side in (SOURCE, TARGET) for text in train[side])

    def example_texts(self) -> list[str]:
        split = self.data.splits.get("test", self.data.splits.get("validation"))
        return [] if split is None else split.select(range(min(3, len(split))))[SOURCE]

    def build(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        arguments, options = self.model_args, self.data_args
        tokenizer = self._tokenizer()
        model = self._model(tokenizer)
        if arguments.lexicon is not None:
            set_lexicon(model.get_encoder(), arguments.lexicon, tokenizer)
        check_vocabulary(tokenizer, model, arguments.tokenizer_name)
        set_vocabulary(model.get_encoder(), tokenizer, label_all_tokens=False)
        set_generation(model, tokenizer, options.num_beams, options.length_penalty)
        self.tokenizer, self.model = tokenizer, model
        self.decoder_start = model.generation_config.decoder_start_token_id
        sides = {SOURCE: getattr(model.config, "encoder", None), TARGET: getattr(model.config, "decoder", None)}
        self.limits = {side: longest_input(config or model.config) for side, config in sides.items()}
        return tokenizer, model

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        arguments, name = self.model_args, tokenizer_name(self)
        if name is not None:
            return load_tokenizer(name, arguments)
        trained = train_subword_tokenizer(
            tokenizer_texts(self), lower_case=arguments.lower_case, vocab_size=arguments.vocab_size
        )
        logger.info(f"Trained a tokenizer of {len(trained)} entries on both sides of the training split.")
        return trained

    def _model(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        arguments = self.model_args
        if arguments.model_name_or_path is None:
            if arguments.embeddings_name_or_path is not None or arguments.freeze_embeddings:
                raise UserError("A translator trains its own embeddings: omit --embeddings_name_or_path")
            return fresh_translator(
                tokenizer,
                model_type=arguments.model_type,
                config_name=arguments.config_name,
                overrides=parse_overrides(arguments.config_overrides),
            )
        model = make_model(self, tokenizer)
        if model.config.model_type == "marian":
            # Its sinusoids are a parameter, which from_pretrained makes trainable (transformers 5.23).
            for side in (model.get_encoder(), model.get_decoder()):
                side.embed_positions.requires_grad_(False)
        return model

    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        sides = {
            side: min((n for n in (longest, limit if split == "train" else None) if n is not None), default=None)
            for side, longest in self.limits.items()
        }
        return encode_translations(
            self.data.splits[split],
            tokenizer,
            source_limit=sides[SOURCE],
            target_limit=sides[TARGET],
            decoder_start=self.decoder_start,
            split=split,
        )

    def collate(self, tokenizer: PreTrainedTokenizerBase) -> DataCollator:
        return DataCollatorForSeq2Seq(tokenizer, model=self.model)

    def scorer(self, split: str, features: Dataset) -> MetricsWithLoss:
        if not self.data.is_labelled(split):
            return MetricsWithLoss(self.metrics)
        return MetricsWithLoss(self.metrics.for_split(self.data.splits[split][TARGET][:], self.texts))

    def prepare_trainer(self, trainer: TranslationTrainer) -> None:
        if isinstance(trainer.model, TextEncoderDecoderModel) and trainer.args.ddp_find_unused_parameters is None:
            trainer.args.ddp_find_unused_parameters = False  # it has none
        trainer.num_beams = self.data_args.num_beams
        trainer.max_extra_tokens = self.data_args.max_extra_tokens
        trainer.smoothing = trainer.args.label_smoothing_factor

    def texts(self, ids: np.ndarray) -> list[str]:
        """Token ids `[rows, m]`, -100 where Trainer padded, as texts."""
        ids = np.where(ids >= 0, ids, self.tokenizer.pad_token_id)
        return [text.strip() for text in self.tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        data = self.data.splits[split]
        columns = {"source": data[SOURCE][:], "predicted": self.texts(predictions)}
        if self.data.is_labelled(split):
            columns["label"] = data[TARGET][:]
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        write_json_lines(folder / f"predictions_{split}.jsonl", rows)
        # Evenly from the whole split: neighbours are often alike.
        places = np.unique(np.linspace(0, len(rows) - 1, num=_CARD_EXAMPLES).round().astype(int))
        headings = {"source": self.data.names[0], "label": "reference", "predicted": self.data.names[1]}
        headings = {name: heading for name, heading in headings.items() if name in columns}
        table = markdown_table([*headings.values()], [[rows[i][name] for name in headings] for i in places])
        return {f"Translations of the {split} split": table}

    def card_settings(self, trainer: StarTrainer) -> dict[str, Any]:
        options, config = self.data_args, trainer.model.config
        beams = f"{options.num_beams}, {options.length_penalty}" if options.num_beams > 1 else "greedy"
        encoder, decoder = getattr(config, "encoder", None), getattr(config, "decoder", None)
        settings: dict[str, Any] = {"translation": " to ".join(self.data.names)}
        if encoder is not None:
            settings["hidden size, layers"] = (
                f"{encoder.model_type} {encoder.hidden_size}, {encoder.num_hidden_layers}; decoder {decoder.d_model}, "
                f"{decoder.decoder_layers}"
            )
        return settings | {
            "vocabulary": len(self.tokenizer),
            "label smoothing": trainer.smoothing,
            "beams, length penalty": beams,
            "BLEU": bleu_signature(self.metrics.tokenize),
        }


# What model cards say about translators; transformers 5 has no pipeline for translations.
USAGE[TranslationTask.pipeline] = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name}{remote})
model = AutoModelForSeq2SeqLM.from_pretrained({name}{remote})
texts = [{text}]
inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))"""
TITLES |= {"bleu": "BLEU", "chrf": "chrF"}
FAMILIES |= {
    "marian": "standard Transformer ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762))",
    "text_encoder_decoder": "Transformer decoder on an encoder of this package",
}
