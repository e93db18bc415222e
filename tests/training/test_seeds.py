"""The arguments that several seeds must share."""

from collections.abc import Callable

import pytest
from task_samples import Parsed

from modeling_star.runs.output_folder import run_config
from modeling_star.tasks.token_classification import TaggingTask


@pytest.mark.parametrize(
    "flag",
    [
        *("--dataloader_drop_last", "--eval_delay=1", "--neftune_noise_alpha=5", "--num_train_epochs=9", "--bf16"),
        *("--adam_beta2=0.9", "--warmup_steps=9", "--weight_decay=0.5", "--label_smoothing_factor=0.1"),
        *("--per_device_train_batch_size=3", "--gradient_accumulation_steps=3", "--max_steps=7", "--stride=2"),
        *("--lr_scheduler_type=cosine", "--optim=adafactor", "--max_grad_norm=2", "--class_weights=balanced"),
        *("--train_sampling_strategy=group_by_length", "--shuffle_length_groups=false", "--average_checkpoints=1"),
        *("--metric_for_best_model=accuracy", "--data_seed=7", "--adam_beta1=0.5", "--adam_epsilon=1"),
        *("--eval_strategy=no", "--save_strategy=no", "--learning_rate=1", "--load_best_model_at_end=false"),
    ],
)
def test_an_argument_that_changes_the_results_changes_the_config(parsed: Callable[..., Parsed], flag: str) -> None:
    assert run_config(*parsed(TaggingTask)) != run_config(*parsed(TaggingTask, flag))


def test_the_number_of_processes_changes_the_config(
    parsed: Callable[..., Parsed], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = parsed(TaggingTask)
    before = run_config(*alone)
    monkeypatch.setattr(type(alone[-1]), "world_size", property(lambda _: 2))
    assert before != run_config(*alone)
