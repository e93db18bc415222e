"""How `answer_question` and `translate` read where they are not told: as the model was scored, so its config says."""

from typing import Any

from transformers import PreTrainedConfig


def save_options(config: PreTrainedConfig, task: str, options: dict[str, Any]) -> None:
    """
    Have a configuration tell the options of a task, in `task_specific_params`, as older models of the Hub do.

    Args:
        config: of a model that is to be saved.
        task: "question-answering" or "translation".
        options: arguments of the task's call; those of other tasks stay.
    """
    config.task_specific_params = {**(getattr(config, "task_specific_params", None) or {}), task: options}


def saved_options(config: PreTrainedConfig, task: str) -> dict[str, Any]:
    """The options that `save_options` put there; none for a model that tells none."""
    return (getattr(config, "task_specific_params", None) or {}).get(task, {})


__all__ = ["save_options", "saved_options"]
