"""Masked summation: the data, the systems, and the script that trains, times and reports them."""

import csv
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import masked_summation_page, masked_summation_runs
from harness.stored_runs import RunFile
from harness.masked_summation import SPLITS, SYSTEMS, MaskedSummation, System, read_shape
from harness.masked_summation_page import command_again, write_report
from harness.masked_summation_runs import Experiment
from harness.summation_arguments import SUMMATION_DEFAULTS, SUMMATION_HELP, SummationArguments
from script_runner import EXPERIMENTS, SCRIPTS, script_runner
from transformers import AutoModelForSequenceClassification, Trainer, TrainerCallback

from modeling_star.commands.parser import parse
from modeling_star.errors import UserError


ROOT = SCRIPTS.parent
SCRIPT = EXPERIMENTS / "masked_summation.py"
SMALL = MaskedSummation(length=7, flagged=3, width=4, samples=(40, 30, 20), seed=5)
# A run of a second.
TINY = (
    *("--flagged=2", "--width=3", "--train_samples=64", "--validation_samples=24", "--test_samples=20"),
    *("--num_train_epochs=2", "--per_device_train_batch_size=16", "--per_device_eval_batch_size=8"),
    *("--learning_rate=1e-2", "--repeats=1", "--disable_tqdm=true", "--use_cpu", "--logging_steps=2"),
    f"--config_name={ROOT / 'configuration/models/star-masked-summation.json'}",
    "--config_overrides=hidden_size=16,num_attention_heads=2",
)


def experiment_of(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: Any) -> Experiment:
    """The experiment of a command line; the last of two equal flags counts."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *TINY, f"--output_dir={folder}", *map(str, flags)])
    return Experiment(*parse((SummationArguments,), "", SUMMATION_DEFAULTS, SUMMATION_HELP))


def kept_in(folder: Path) -> dict[str, Any]:
    return RunFile(folder / "results.jsonl").read_all()


# ------ the data


@pytest.mark.parametrize("split", SPLITS)
def test_k_vectors_are_flagged_and_the_target_is_their_sum(split: Any) -> None:
    data = SMALL.draw(split)
    assert len(data) == dict(zip(SPLITS, SMALL.samples, strict=True))[split]
    for index in range(len(data)):
        example = data[index]
        vectors, target = example["inputs_embeds"].tolist(), example["labels"].tolist()
        assert [len(vector) for vector in vectors] == [4] * 7
        assert sorted(vector[0] for vector in vectors) == [0, 0, 0, 0, 1, 1, 1]
        assert all(0 <= number < 1 for vector in vectors for number in vector[1:])
        expected = [0.0] * 3
        for flag, *numbers in vectors:
            if flag == 1:
                expected = [total + number for total, number in zip(expected, numbers, strict=True)]
        assert target == pytest.approx(expected, abs=1e-6)


def test_guesses_without_a_model_have_the_errors_that_loops_find() -> None:
    data = SMALL.draw("train")
    half, scaled, count = 0.0, 0.0, 0
    for inputs, target in zip(data.inputs.tolist(), data.targets.tolist(), strict=True):
        for place, wanted in enumerate(target, start=1):
            half += (1.5 - wanted) ** 2
            scaled += (3 / 7 * sum(vector[place] for vector in inputs) - wanted) ** 2
            count += 1
    assert SMALL.guess_errors(data) == pytest.approx({"half": half / count, "scaled": scaled / count}, rel=1e-6)


# ------ the systems


@pytest.mark.parametrize("name", [*SYSTEMS, "big_transformer"])
def test_every_system_takes_vectors_and_trains_all_of_its_weights(name: str) -> None:
    shape = read_shape(str(ROOT / "configuration/models/star-masked-summation.json"), SMALL.width)
    model = System(name, shape, {"hidden_size": 20}).build(SMALL)
    data = SMALL.draw("train")
    output = model(inputs_embeds=data.inputs[:4], labels=data.targets[:4])
    assert output.logits.shape == (4, 3)
    assert output.loss.item() == pytest.approx((output.logits - data.targets[:4]).square().mean().item())
    output.loss.backward()
    # Several processes would wait for an absent gradient.
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert not any(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))


def test_the_variants_are_those_of_table_6() -> None:
    shape = read_shape(str(ROOT / "configuration/models/star-masked-summation.json"), 10)
    configs = {name: System(name, shape, {}).build(MaskedSummation(10)).config for name in masked_summation_page.PAPER}
    assert [(c.use_radial, c.use_ring) for c in configs.values()] == [(True, True), (False, True), (True, False)]
    # Table 1: 100 wide, 10 heads of 10
    assert all((c.hidden_size, c.num_attention_heads, c.head_dim) == (100, 10, 10) for c in configs.values())


# ------ the script


@pytest.mark.parametrize(
    "flags",
    [
        ["--lengths", 4, 1],  # fewer than are flagged
        ["--width", 1],
        ["--test_samples", 0],
        ["--stages", "draw"],
        ["--systems", "bert"],
        ["--config_name", "none.json"],
        ["--config_overrides", "hidden=3"],
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[Any]
) -> None:
    with pytest.raises(UserError, match=str(flags[-1]).split("=")[0]):
        experiment_of(monkeypatch, tmp_path, "--systems", "star", "--lengths", 4, *flags)
    assert not list(tmp_path.iterdir())


def run_script(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: Any) -> int:
    """The script's exit status."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *TINY, f"--output_dir={folder}", *map(str, flags)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return stop.value.code


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of two systems at two lengths."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        code = run_script(monkeypatch, folder, "--systems", "star", "vanilla", "--lengths", 4, 6, "--keep_models")
    assert code == 0
    return folder


def test_the_script_leaves_a_file_for_each_run_and_length_with_table_and_figures(finished: Path) -> None:
    kept = kept_in(finished)
    runs = {f"{system}-n{length}-seed1" for system in ("star", "vanilla") for length in (4, 6)}
    assert set(kept) == runs | {"times-n4", "times-n6"}
    for name in runs:
        run = kept[name]
        assert f"{run['system']}-n{run['length']}-seed{run['seed']}" == name
        assert run["arguments"]["flagged"] == 2
        assert run["arguments"]["learning_rate"] == 1e-2
        assert run["environment"]["threads"] >= 1
        assert "masked_summation.py" in run["command"]
    for name in ("times-n4", "times-n6"):
        assert {system: len(seconds) for system, seconds in kept[name]["seconds"].items()} == {"star": 1, "vanilla": 1}
    page = (finished / "results.md").read_text(encoding="utf-8")
    assert f"| star | {kept['star-n4-seed1']['test']:.4f} (1) | {kept['star-n6-seed1']['test']:.4f} (1) |" in page
    assert f"| always k/2 | {kept['star-n4-seed1']['guesses']['half']:.4f} |" in page
    assert "threads " in page
    for name in ("figure_3a.png", "figure_3b.png"):
        assert (finished / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in page
    with open(finished / "results.csv", encoding="utf-8", newline="") as file:
        assert [(row["system"], row["n"], row["runs"]) for row in csv.DictReader(file)] == [
            *(("star", "4", "1"), ("star", "6", "1"), ("vanilla", "4", "1"), ("vanilla", "6", "1"))
        ]


def test_the_error_is_the_mean_over_examples_and_numbers_of_the_saved_model(finished: Path) -> None:
    kept = kept_in(finished)["star-n6-seed1"]
    task = MaskedSummation(6, 2, 3, (64, 24, 20))
    model = AutoModelForSequenceClassification.from_pretrained(finished / "runs/star-n6-seed1").eval()
    for split in ("validation", "test"):
        data = task.draw(split)
        with torch.no_grad():
            answers = model(inputs_embeds=data.inputs).logits.tolist()
        errors = [
            (number - wanted) ** 2
            for answer, target in zip(answers, data.targets.tolist(), strict=True)
            for number, wanted in zip(answer, target, strict=True)
        ]
        assert len(errors) == len(data) * 2
        assert kept[split] == pytest.approx(sum(errors) / len(errors), rel=1e-5)
    assert kept["guesses"] == pytest.approx(task.guess_errors(task.draw("test")))
    assert kept["parameters"] == sum(p.numel() for n, p in model.named_parameters() if "word_embeddings" not in n)


def test_what_is_finished_is_not_done_again_and_new_seeds_are(
    finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = shutil.copytree(finished, tmp_path / "again")
    before = kept_in(finished)
    flags = ("--systems", "star", "vanilla", "--lengths", 4)
    assert run_script(monkeypatch, folder, *flags) == 0
    assert kept_in(folder) == before  # a run that is repeated takes another time
    assert run_script(monkeypatch, folder, *flags, "--systems", "star", "--seeds", 1, 2) == 0
    assert "(2)" in (folder / "results.md").read_text(encoding="utf-8")
    kept = kept_in(folder)
    second = kept.pop("star-n4-seed2")
    assert kept == before
    assert second["test"] != kept["star-n4-seed1"]["test"]
    assert second["guesses"] == kept["star-n4-seed1"]["guesses"]


def test_results_of_other_arguments_are_neither_used_nor_replaced(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept_in(finished)
    for flags, difference in (
        (("--num_train_epochs=3",), "num_train_epochs 2.0, now 3.0"),
        (("--flagged=1",), "flagged 2, now 1"),
        (("--config_overrides=hidden_size=8,num_attention_heads=2",), "hidden_size 16, now 8"),
        (("--stages", "time", "--per_device_eval_batch_size=4"), "rows 8, now 4"),
    ):
        experiment = experiment_of(monkeypatch, finished, "--systems", "star", "--lengths", 4, *flags)
        with pytest.raises(UserError, match=difference):
            experiment.run()
    assert kept_in(finished) == before


class KilledError(Exception):
    """In place of a killed process."""


class StopAtFirstCheckpoint(TrainerCallback):
    def on_save(self, *args: Any, **kwargs: Any) -> None:
        raise KilledError


class KilledTrainer(Trainer):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, callbacks=[StopAtFirstCheckpoint()], **kwargs)


def test_an_interrupted_run_resumes_and_ends_as_if_it_had_not_been(
    finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = ("--systems", "star", "--lengths", 6, "--stages", "train")
    with monkeypatch.context() as patched:
        patched.setattr(masked_summation_runs, "Trainer", KilledTrainer)
        experiment = experiment_of(patched, tmp_path, *flags)
        with pytest.raises(KilledError):
            experiment.run()
    assert kept_in(tmp_path) == {}
    assert [path.name for path in (tmp_path / "runs/star-n6-seed1").glob("checkpoint-*")] == ["checkpoint-4"]
    # It does not resume with other arguments.
    assert experiment_of(monkeypatch, tmp_path, *flags, "--learning_rate=1").run() is True
    assert experiment_of(monkeypatch, tmp_path, *flags).run() is False
    straight, resumed = kept_in(finished)["star-n6-seed1"], kept_in(tmp_path)["star-n6-seed1"]
    for split in ("validation", "test"):
        assert resumed[split] == pytest.approx(straight[split], rel=1e-5)
    assert straight["training_seconds"] > 0
    assert resumed["training_seconds"] is None
    assert sorted(path.name for path in (tmp_path / "runs/star-n6-seed1").iterdir()) == [
        *("arguments.json", "environment.json", "running.lock", "training_curves.png")
    ]


def test_the_committed_result_is_that_of_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    results = ROOT / "experiments/results/masked_summation.jsonl"
    kept = RunFile(results).read("star-n200-seed1")
    assert kept is not None
    command = [*kept["command"].split()[2:], f"--results={results}", f"--output_dir={tmp_path}"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *command])
    assert Experiment(*parse((SummationArguments,), "", SUMMATION_DEFAULTS, SUMMATION_HELP)).due() == []


@pytest.mark.slow
def test_two_processes_leave_one_result(tmp_path: Path) -> None:
    with script_runner(tmp_path, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1") as runner:
        flags = (*TINY, "--systems", "star", "--lengths", 4, 6, "--output_dir", "together")
        done = runner.check("masked_summation.py", *flags, processes=2)
        assert done.out.count("# Masked summation") == 1
        kept = kept_in(tmp_path / "together")
        assert set(kept) == {"star-n4-seed1", "star-n6-seed1", "times-n4", "times-n6"}
        assert kept["star-n4-seed1"]["arguments"]["processes"] == 2
        refused = runner.run("masked_summation.py", *flags, "--learning_rate=1", processes=2)
        assert refused.code != 0
        assert refused.error.count("other arguments") == 1


# ------ tables and figures


ARGUMENTS = {
    **{"flagged": 10, "width": 10, "train_samples": 10_000, "test_samples": 10_000, "num_train_epochs": 40.0},
    **{"per_device_train_batch_size": 100, "gradient_accumulation_steps": 1, "processes": 1, "learning_rate": 1e-3},
}
ENVIRONMENT = {"python": "3.11", "torch": "2.13", "transformers": "5.23", "device": "cpu", "threads": 2}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two seeds of star at n = 200, one of vanilla at n = 400, and times at n = 200."""
    file = RunFile(tmp_path / "results.jsonl")
    for system, length, seed, test in (("star", 200, 1, 0.002), ("star", 200, 2, 0.004), ("vanilla", 400, 1, 0.5)):
        run = {"system": system, "length": length, "seed": seed, "validation": test, "test": test, "parameters": 1234}
        run |= {"guesses": {"half": 10 / 12, "scaled": 0.75}, "training_seconds": 60.0 * seed}
        run |= {"arguments": ARGUMENTS, "config": {}, "environment": ENVIRONMENT, "command": "python ..."}
        file.keep({f"{system}-n{length}-seed{seed}": run})
    times = {"length": 200, "rows": 100, "seconds": {"star": [0.003, 0.001, 0.002], "vanilla": []}}
    times |= {"errors": {"vanilla": "RuntimeError: no memory"}, "environment": ENVIRONMENT}
    times["config"] = {"star": {}, "vanilla": {}}
    file.keep({"times-n200": times})
    return file.path


def test_the_page_has_means_deviations_gaps_and_the_papers_numbers(results: Path) -> None:
    page = write_report(results, results.parent)
    assert (results.parent / "results.md").read_text(encoding="utf-8") == page
    for line in (
        "|  | n = 200 | n = 400 | paper, n = 200 |",
        "| star | 0.0030 ± 0.0014 (2) | -- | 0.0284 |",
        "| vanilla | -- | 0.5000 (1) | -- |",
        "| always k/2 | 0.8333 | 0.8333 | -- |",
        "| k/n of the sum of all | 0.7500 | 0.7500 | -- |",
        "| star | 1,234, 1.5 | -- |",
        "| star | 2.0 |",
        "| vanilla | RuntimeError: no memory |",
    ):
        assert line in page.splitlines()
    assert "cpu, threads 2, PyTorch 2.13" in page


@pytest.mark.parametrize("key", ["arguments", "config"])
def test_runs_of_different_arguments_or_shapes_give_no_page(results: Path, tmp_path: Path, key: str) -> None:
    run = RunFile(results).read("star-n200-seed2")
    assert run is not None
    run["arguments"]["dataloader_drop_last"] = False  # later results list more arguments
    RunFile(results).keep({"star-n200-seed2": run})
    write_report(results, tmp_path)
    run[key]["num_train_epochs"] = 1
    RunFile(results).keep({"star-n200-seed2": run})
    with pytest.raises(UserError, match="num_train_epochs"):
        write_report(results, tmp_path)


def test_the_command_of_a_run_repeats_it_alone() -> None:
    typed = "python experiments/masked_summation.py --systems star vanilla --flagged 3 --lengths=10 20 --results a"
    run = {
        "system": "star",
        "length": 20,
        "seed": 2,
        "command": f"{typed} --num_train_epochs 5 --output_dir outputs/b",
    }
    again = "--systems star --lengths 20 --seeds 2 --stages train report --output_dir outputs/again"
    flags = "--flagged 3 --num_train_epochs 5"
    assert command_again(run) == f"python experiments/masked_summation.py {flags} {again}"
