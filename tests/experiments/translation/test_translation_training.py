"""How the flags of run_translation.py reach the data, the model and the trainer, before anything is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from task_samples import GROUPS, OWN_TRAINING, Parsed, trainer_of
from torch import Tensor
from transformers import MarianConfig
from translation.builders import fresh_translator
from translation.parallel_text import _PairEncoder
from translation.subwords import train_subword_tokenizer
from translation.task import TranslationTask

from modeling_star.commands.parser import parse
from modeling_star.data.files import source_version
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.training.settled_arguments import settle_training


ROOT = Path(__file__).resolve().parents[3]


def test_translation_smooths_its_loss(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    small = "d_model=16,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2"
    arguments = parsed(TranslationTask, f"--config_overrides={small}", "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    assert trainer.compute_loss_func.smoothing == 0.1  # the paper's, by default
    arguments = parsed(TranslationTask, f"--config_overrides={small}", "--report_to=none", "--generation_num_beams=3")
    assert arguments[-1].generation_num_beams == 3


def test_the_defaults_of_translation_are_those_of_the_paper(parsed: Callable[..., Parsed]) -> None:
    training = parsed(TranslationTask)[-1]
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (training.lr_scheduler_type, training.warmup_steps) == ("inverse_sqrt", 0.1)
    assert training.predict_with_generate


def test_the_reported_scores_have_their_own_beams(
    parsed: Callable[..., Parsed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = "--model_type=star_transformer --config_overrides=encoder.hidden_size=16,encoder.num_attention_heads=2"
    beams = ("--generation_num_beams=2", "--num_beams=3", "--generation_max_length=4", "--validation_fraction=0.5")
    arguments = parsed(TranslationTask, *sizes.split(), *beams, "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    seen: list[tuple[int, int]] = []
    generate = trainer.model.generate

    def spy(**options: Any) -> Tensor:
        seen.append((options["num_beams"], options["max_length"]))
        return generate(**options)

    monkeypatch.setattr(trainer.model, "generate", spy)
    trainer.evaluate()
    assert set(seen) == {(2, 4)}
    seen.clear()
    trainer.predict(trainer.eval_dataset)
    assert {beams for beams, _ in seen} == {3}
    assert all(longest > 50 for _, longest in seen), "as the saved model translates"


@pytest.mark.parametrize(
    ("given", "searches"),
    [
        (
            "--model_type=star_transformer --config_overrides=encoder.hidden_size=16,encoder.num_attention_heads=2",
            False,
        ),
        ("--model_type=marian --config_overrides=d_model=16", None),
    ],
)
def test_processes_search_for_unused_parameters_where_a_model_may_have_some(
    parsed: Callable[..., Parsed], tmp_path: Path, given: str, searches: bool | None
) -> None:
    arguments = parsed(TranslationTask, *given.split(), "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    assert trainer.args.ddp_find_unused_parameters is searches


def test_equal_sources_are_held_out_together(task_of: Callable[..., Any]) -> None:
    splits = task_of(TranslationTask, "--validation_fraction=0.5").data.splits
    learnt, held = set(splits["train"]["source"]), set(splits["validation"]["source"])
    assert learnt
    assert held
    assert not learnt & held
    # Four rows share each text.
    assert len(splits["train"]) == 4 * len(learnt)


def test_flags_of_translation_reach_its_metrics(task_of: Callable[..., Any]) -> None:
    assert task_of(TranslationTask).metrics.tokenize == "13a"
    assert task_of(TranslationTask, "--bleu_tokenize=char").metrics.tokenize == "char"
    assert task_of(TranslationTask, "--source_column=en", "--target_column=zh").metrics.tokenize == "zh"


@pytest.mark.parametrize(("generates", "best"), [(True, "bleu"), (False, "loss")])
def test_a_translator_is_chosen_by_what_is_measured(
    task_of: Callable[..., Any], parsed: Callable[..., Parsed], generates: bool, best: str
) -> None:
    *_, data, run, training = parsed(
        TranslationTask, f"--predict_with_generate={generates}", "--average_checkpoints=0"
    )
    model: Any = torch.nn.Linear(1, 1)
    metrics = task_of(TranslationTask).metrics
    TranslationTask.check_arguments(data, training)
    assert settle_training(training, run, metrics, model, True).metric_for_best_model == best
    training.metric_for_best_model = "chrf"
    if not generates:
        with pytest.raises(UserError, match="--metric_for_best_model chrf"):
            TranslationTask.check_arguments(data, training)


@pytest.mark.parametrize("kind", ["big_transformer", "marian"])
def test_a_translators_configuration_must_be_of_the_given_type(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    tokenizer = train_subword_tokenizer(["a b c", "d e f"], vocab_size=40)
    shape = "experiments/translation/shapes/star-translation-small.json"
    small = {"encoder.hidden_size": 16, "encoder.num_attention_heads": 2, "encoder.num_hidden_layers": 1}
    model = fresh_translator(tokenizer, model_type="star_transformer", config_name=shape, overrides=small)
    assert model.config.encoder.model_type == "star_transformer"
    with pytest.raises(UserError, match=f"--model_type {kind} is given"):
        fresh_translator(tokenizer, model_type=kind, config_name=shape, overrides=small)


def test_a_fresh_peer_that_translates_has_as_many_rows_as_the_tokenizer_entries(tmp_path: Path) -> None:
    sizes = {
        f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    MarianConfig(vocab_size=300, pad_token_id=299, d_model=8, **sizes).save_pretrained(tmp_path)
    tokenizer = train_tokenizer(["a b c d e f"] * 3, "word")
    model = fresh_translator(tokenizer, model_type="marian", config_name=str(tmp_path))
    assert model.get_input_embeddings().weight.shape == model.lm_head.weight.shape == (len(tokenizer), 8)


@pytest.mark.parametrize("name", ["tatoeba_zh_en", "multi30k_de_en"])
def test_the_recipes_are_read_and_name_shapes_that_are_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = ROOT / "experiments" / "translation" / "recipes" / f"{name}.yaml"
    monkeypatch.setattr("sys.argv", ["run_translation.py", str(recipe)])
    model, _, run, training = parse(GROUPS[TranslationTask], "A script.", **OWN_TRAINING[TranslationTask])
    assert (ROOT / model.config_name).is_file()
    assert run.average_checkpoints == 5
    assert training.warmup_steps == 1000


def test_features_are_made_anew_for_newer_code() -> None:
    made_by = source_version("translation.parallel_text", "translation.subwords")
    assert _PairEncoder.__dataclass_fields__["version"].default == made_by
