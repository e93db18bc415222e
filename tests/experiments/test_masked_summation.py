"""Masked summation: the data, the systems, and the script that trains, times and reports them."""

import csv
import json
import logging
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from lab import masked_summation_page, masked_summation_runs
from lab.masked_summation import SPLITS, SYSTEMS, MaskedSummation, System, read_shape
from lab.masked_summation_page import command_again, write_report
from lab.masked_summation_runs import Experiment
from lab.summation_arguments import SUMMATION_DEFAULTS, SUMMATION_HELP, SummationArguments
from script_runner import EXPERIMENTS, SCRIPTS, script_runner
from transformers import AutoModelForSequenceClassification, Trainer, TrainerCallback

from modeling_star.errors import UserError
from modeling_star.training.arguments import parse


ROOT = SCRIPTS.parent
SCRIPT = EXPERIMENTS / "masked_summation.py"
SMALL = MaskedSummation(length=7, flagged=3, width=4, samples=(40, 30, 20), seed=5)
# The least that still learns.
TINY = (
    *("--flagged=2", "--width=3", "--train_samples=64", "--validation_samples=24", "--test_samples=20"),
    *("--num_train_epochs=2", "--per_device_train_batch_size=16", "--per_device_eval_batch_size=8"),
    *("--learning_rate=1e-2", "--repeats=1", "--disable_tqdm=true", "--use_cpu", "--logging_steps=2"),
    f"--config_name={ROOT / 'configuration/models/star-masked-summation.json'}",
    "--config_overrides=hidden_size=16,num_attention_heads=2",
)


def asked(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: Any) -> Experiment:
    """What a command line asks for; the last of two equal flags counts."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *TINY, f"--output_dir={folder}", *map(str, flags)])
    return Experiment(*parse((SummationArguments,), "", SUMMATION_DEFAULTS, SUMMATION_HELP))


def kept_in(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (folder / "results").glob("*.json")}


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


def test_all_vectors_may_be_flagged() -> None:
    data = MaskedSummation(3, 3, 2, (4, 4, 4)).draw("train")
    assert data.inputs[..., 0].eq(1).all()
    torch.testing.assert_close(data.targets, data.inputs[..., 1:].sum(1))


def test_every_place_is_flagged_as_often_and_numbers_are_uniform() -> None:
    inputs = MaskedSummation(5, 2, 3, (4000, 1, 1)).draw("train").inputs
    # five deviations of a mean of 4,000 flags, or of 40,000 numbers
    assert (inputs[..., 0].mean(0) - 2 / 5).abs().max() < 5 * np.sqrt(0.4 * 0.6 / 4000)
    assert abs(float(inputs[..., 1:].mean()) - 1 / 2) < 5 * np.sqrt(1 / 12 / 40_000)
    assert np.histogram(inputs[..., 1:].numpy(), bins=4, range=(0, 1))[0] == pytest.approx([10_000] * 4, rel=0.05)


def test_the_same_seed_draws_the_same_and_another_seed_something_else() -> None:
    first = SMALL.draw("test")
    assert torch.equal(first.inputs, SMALL.draw("test").inputs)
    other = MaskedSummation(7, 3, 4, SMALL.samples, seed=6).draw("test")
    assert not first.inputs[..., 1:].eq(other.inputs[..., 1:]).any()


def test_no_number_of_one_split_is_in_another() -> None:
    numbers = [set(SMALL.draw(split).inputs[..., 1:].flatten().double().tolist()) for split in SPLITS]
    assert len(set.union(*numbers)) == sum(map(len, numbers))


def test_guesses_without_a_model_have_the_errors_that_loops_find() -> None:
    data = SMALL.draw("train")
    half, scaled, count = 0.0, 0.0, 0
    for inputs, target in zip(data.inputs.tolist(), data.targets.tolist(), strict=True):
        for place, wanted in enumerate(target, start=1):
            half += (1.5 - wanted) ** 2
            scaled += (3 / 7 * sum(vector[place] for vector in inputs) - wanted) ** 2
            count += 1
    assert SMALL.guess_errors(data) == pytest.approx({"half": half / count, "scaled": scaled / count}, rel=1e-6)


def test_guesses_err_as_much_as_chance_says() -> None:
    task = MaskedSummation(20, 5, 10, (4000, 1, 1))
    expected = {"half": 5 / 12, "scaled": 5 / 12 * (1 - 5 / 20)}
    assert task.guess_errors(task.draw("train")) == pytest.approx(expected, rel=0.05)


# ------ the systems


@pytest.mark.parametrize("name", [*SYSTEMS, "big_transformer"])
def test_every_system_reads_vectors_and_learns_from_each_of_its_weights(name: str) -> None:
    shape = read_shape(str(ROOT / "configuration/models/star-masked-summation.json"), SMALL.width)
    model = System(name, shape, {"hidden_size": 20}).build(SMALL)
    data = SMALL.draw("train")
    output = model(inputs_embeds=data.inputs[:4], labels=data.targets[:4])
    assert output.logits.shape == (4, 3)
    assert output.loss.item() == pytest.approx((output.logits - data.targets[:4]).square().mean().item())
    output.loss.backward()
    # Several processes would wait for a gradient that never comes.
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert not any(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))


def test_the_variants_are_those_of_table_6() -> None:
    shape = read_shape(str(ROOT / "configuration/models/star-masked-summation.json"), 10)
    configs = {name: System(name, shape, {}).build(MaskedSummation(10)).config for name in masked_summation_page.PAPER}
    assert [(c.use_radial, c.use_ring) for c in configs.values()] == [(True, True), (False, True), (True, False)]
    # Table 1: 100 wide, 10 heads of 10
    assert all((c.hidden_size, c.num_attention_heads, c.head_dim) == (100, 10, 10) for c in configs.values())


# ------ what is refused


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--lengths", 4, 1],
            r"--lengths has 1, fewer vectors than the --flagged 2.*--lengths 2 or more, or --flagged 1",
        ),
        (["--lengths", 0], r"--lengths has 0; at least 1"),
        (["--lengths", -3], r"--lengths has -3; at least 1"),
        (["--lengths", 4, 4], r"--lengths names 4 4: write each once"),
        (["--flagged", 0], r"--flagged 0 is given"),
        (["--width", 1], r"--width 1 is given; 2 is the least"),
        (["--test_samples", 0], r"--test_samples 0 is given"),
        (["--draw_seed", -1], r"--draw_seed -1 is given"),
        (["--seeds", 1, 1], r"--seeds names 1 1: write each once"),
        (["--repeats", 0], r"--repeats 0 is given"),
        (["--stages", "draw"], r"--stages names draw; train, time, report are allowed"),
        (["--systems", "stars"], r'--systems names stars, .*Did you mean "star"\?'),
        (["--systems", "bert"], r"--systems names bert, which is not of this package"),
        (["--config_name", "none.json"], r"--config_name none.json cannot be read"),
        (["--config_overrides", "hidden=3"], r"sets hidden, which StarTransformerConfig does not have"),
        (["--config_overrides", "hidden_size=15"], r"hidden_size=15 is not a multiple of num_attention_heads=10"),
        (["--do_predict"], r"What is done is told by --stages"),
        (["--push_to_hub"], r"--push_to_hub uploads one model"),
        (["--resume_from_checkpoint", "x"], r"leave --resume_from_checkpoint away"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        asked(monkeypatch, tmp_path, "--systems", "star", "--lengths", 4, *flags)
    assert not list(tmp_path.iterdir())


# ------ the script


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
    finished: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    folder = shutil.copytree(finished, tmp_path / "again")
    before = {path.name: path.read_bytes() for path in (finished / "results").iterdir()}
    flags = ("--systems", "star", "vanilla", "--lengths", 4)
    with caplog.at_level(logging.INFO):
        assert run_script(monkeypatch, folder, *flags) == 0
        assert "Run 1 of" not in caplog.text
        assert run_script(monkeypatch, folder, *flags, "--systems", "star", "--seeds", 1, 2) == 0
    assert "Run 1 of 1: star-n4-seed2" in caplog.text
    after = {path.name: path.read_bytes() for path in (folder / "results").iterdir()}
    assert after.pop("star-n4-seed2.json")
    assert after == before
    assert "(2)" in (folder / "results.md").read_text(encoding="utf-8")
    kept = kept_in(folder)
    assert kept["star-n4-seed2"]["test"] != kept["star-n4-seed1"]["test"]
    assert kept["star-n4-seed2"]["guesses"] == kept["star-n4-seed1"]["guesses"]


def test_results_of_other_arguments_are_neither_used_nor_replaced(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in (finished / "results").iterdir()}
    for flags, told in (
        (("--num_train_epochs=3",), "num_train_epochs 2.0, now 3.0"),
        (("--dataloader_drop_last",), "dataloader_drop_last False, now True"),
        (("--flagged=1",), "flagged 2, now 1"),
        (("--config_overrides=hidden_size=8,num_attention_heads=2",), "hidden_size 16, now 8"),
        (("--stages", "time", "--per_device_eval_batch_size=4"), "rows 8, now 4"),
    ):
        experiment = asked(monkeypatch, finished, "--systems", "star", "--lengths", 4, *flags)
        with pytest.raises(UserError, match=f"was made with .*{told}"):
            experiment.run()
    assert {path.name: path.read_bytes() for path in (finished / "results").iterdir()} == before


def test_times_of_another_commit_still_count(finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(finished / "results", tmp_path / "results")
    path = tmp_path / "results" / "times-n4.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert "commit" in kept
    path.write_text(json.dumps({**kept, "commit": "0123456789ab"}), encoding="utf-8")
    before = path.read_bytes()
    flags = ("--systems", "star", "vanilla", "--lengths", 4, "--stages", "time", "report")
    asked(monkeypatch, tmp_path, *flags).run()
    assert path.read_bytes() == before
    assert (tmp_path / "results.md").is_file()


class KilledError(Exception):
    """Stands for a process that is killed."""


class StopAtFirstCheckpoint(TrainerCallback):
    def on_save(self, *args: Any, **kwargs: Any) -> None:
        raise KilledError


class KilledTrainer(Trainer):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, callbacks=[StopAtFirstCheckpoint()], **kwargs)


def test_a_run_that_was_stopped_goes_on_and_ends_as_if_it_had_not(
    finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = ("--systems", "star", "--lengths", 6, "--stages", "train")
    with monkeypatch.context() as patched:
        patched.setattr(masked_summation_runs, "Trainer", KilledTrainer)
        experiment = asked(patched, tmp_path, *flags)
        with pytest.raises(KilledError):
            experiment.run()
    assert kept_in(tmp_path) == {}
    assert [path.name for path in (tmp_path / "runs/star-n6-seed1").glob("checkpoint-*")] == ["checkpoint-4"]
    # not with other arguments than it was begun with
    assert asked(monkeypatch, tmp_path, *flags, "--learning_rate=1").run() is True
    assert asked(monkeypatch, tmp_path, *flags).run() is False
    straight, resumed = kept_in(finished)["star-n6-seed1"], kept_in(tmp_path)["star-n6-seed1"]
    for split in ("validation", "test"):
        assert resumed[split] == pytest.approx(straight[split], rel=1e-5)
    assert straight["training_seconds"] > 0
    assert resumed["training_seconds"] is None
    assert sorted(path.name for path in (tmp_path / "runs/star-n6-seed1").iterdir()) == [
        *("environment.json", "made_by.json", "running.lock", "training_curves.png")
    ]


def test_a_result_that_tells_fewer_arguments_was_made_with_those_that_were_not_named(
    finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = kept_in(finished)["star-n4-seed1"]
    told = ("eval_strategy", "save_strategy", "do_train", "dataloader_drop_last", "metric_for_best_model")
    for name in told:
        del result["arguments"][name]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "star-n4-seed1.json").write_text(json.dumps(result), encoding="utf-8")
    flags = ("--systems", "star", "--lengths", 4, "--stages", "train")
    assert asked(monkeypatch, tmp_path, *flags).due() == []
    for flag in ("--save_strategy=no", "--dataloader_drop_last"):
        with pytest.raises(UserError, match="was made with other arguments"):
            asked(monkeypatch, tmp_path, *flags, flag).due()


def test_the_committed_result_is_that_of_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    kept = json.loads((ROOT / "experiments/results/masked_summation/star-n200-seed1.json").read_text(encoding="utf-8"))
    command = [*kept["command"].split()[2:], f"--output_dir={tmp_path}"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *command])
    assert Experiment(*parse((SummationArguments,), "", SUMMATION_DEFAULTS, SUMMATION_HELP)).due() == []


def test_nothing_is_timed_while_another_process_trains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "runs" / "star-n6-seed1"
    folder.mkdir(parents=True)
    flags = ("--systems", "star", "--lengths", 4, "--stages", "time")
    with FileLock(folder / "running.lock"):
        assert asked(monkeypatch, tmp_path, *flags).run() is False
    assert "Nothing is timed while another process is at star-n6-seed1" in caplog.text
    assert kept_in(tmp_path) == {}
    assert asked(monkeypatch, tmp_path, *flags).run() is False
    assert list(kept_in(tmp_path)) == ["times-n4"]


def test_a_run_that_another_process_is_at_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = ("--systems", "star", "--lengths", 6, "--stages", "train")
    folder = tmp_path / "runs" / "star-n6-seed1"
    folder.mkdir(parents=True)
    with FileLock(folder / "running.lock"), caplog.at_level("INFO"):
        assert asked(monkeypatch, tmp_path, *flags).run() is False
    assert "star-n6-seed1: another process is at it" in caplog.text
    assert kept_in(tmp_path) == {}
    assert not (folder / "made_by.json").exists()


def test_a_run_that_diverges_is_told_and_the_next_one_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    real = masked_summation_runs.mean_squared_error
    asked_for: list[str] = []

    def first_is_nan(trainer: Trainer, data: Any, split: str) -> float:
        asked_for.append(split)
        return float("nan") if len(asked_for) <= 2 else real(trainer, data, split)

    monkeypatch.setattr(masked_summation_runs, "mean_squared_error", first_is_nan)
    flags = ("--systems", "star", "vanilla", "--lengths", 4, "--stages", "train", "--num_train_epochs=1")
    assert asked(monkeypatch, tmp_path, *flags).run() is True
    assert "star-n4-seed1 diverged, its MSE is nan: write a lower --learning_rate and another" in caplog.text
    assert set(kept_in(tmp_path)) == {"vanilla-n4-seed1"}


def test_star_learns_the_sum(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = ("--systems", "star", "--lengths", 6, "--stages", "train", "--num_train_epochs=5", "--train_samples=512")
    assert asked(monkeypatch, tmp_path, *flags, "--save_strategy=no").run() is False
    result = kept_in(tmp_path)["star-n6-seed1"]
    assert result["test"] < 0.5 * result["guesses"]["scaled"]


def test_a_new_system_is_timed_together_with_those_that_have_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = ("--lengths", 4, "--stages", "time", "report")
    for systems, expected in (
        (["star"], ["star"]),
        (["vanilla", "star-no-ring"], ["star", "vanilla", "star-no-ring"]),
        (["vanilla"], ["star", "vanilla", "star-no-ring"]),
    ):
        before = kept_in(tmp_path)
        assert asked(monkeypatch, tmp_path, *flags, "--systems", *systems).run() is False
        kept = kept_in(tmp_path)["times-n4"]
        assert list(kept["seconds"]) == expected
        assert kept["rows"] == 8
        if systems == ["vanilla"]:
            assert before == kept_in(tmp_path)
    assert "| star-no-ring |" in (tmp_path / "results.md").read_text(encoding="utf-8")


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
        assert refused.error.count("was made with other arguments") == 1


# ------ tables and figures


ARGUMENTS = {
    **{"flagged": 10, "width": 10, "train_samples": 10_000, "test_samples": 10_000, "num_train_epochs": 40.0},
    **{"per_device_train_batch_size": 100, "gradient_accumulation_steps": 1, "processes": 1, "learning_rate": 1e-3},
}
ENVIRONMENT = {"python": "3.11", "torch": "2.13", "transformers": "5.23", "device": "cpu", "threads": 2}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two seeds of star at n = 200, one of vanilla at n = 400, and times at n = 200."""
    folder = tmp_path / "results"
    folder.mkdir()
    for system, length, seed, test in (("star", 200, 1, 0.002), ("star", 200, 2, 0.004), ("vanilla", 400, 1, 0.5)):
        run = {"system": system, "length": length, "seed": seed, "validation": test, "test": test, "parameters": 1234}
        run |= {"guesses": {"half": 10 / 12, "scaled": 0.75}, "training_seconds": 60.0 * seed}
        run |= {"arguments": ARGUMENTS, "config": {}, "environment": ENVIRONMENT, "command": "python ..."}
        (folder / f"{system}-n{length}-seed{seed}.json").write_text(json.dumps(run), encoding="utf-8")
    times = {"length": 200, "rows": 100, "seconds": {"star": [0.003, 0.001, 0.002], "vanilla": []}}
    times |= {"errors": {"vanilla": "RuntimeError: no memory"}, "environment": ENVIRONMENT}
    times["config"] = {"star": {}, "vanilla": {}}
    (folder / "times-n200.json").write_text(json.dumps(times), encoding="utf-8")
    return folder


def test_the_page_tells_means_deviations_what_is_missing_and_the_papers_numbers(results: Path) -> None:
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


def test_the_papers_numbers_stand_only_beside_its_task(results: Path) -> None:
    for path in results.glob("*-seed*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        run["arguments"]["flagged"] = 5
        path.write_text(json.dumps(run), encoding="utf-8")
    assert "paper" not in write_report(results, results.parent)


def test_the_csv_holds_every_digit_that_counts(results: Path) -> None:
    write_report(results, results.parent)
    with open(results.parent / "results.csv", encoding="utf-8", newline="") as file:
        star, vanilla = csv.DictReader(file)
    assert [star[name] for name in ("n", "runs", "test_mse", "training_seconds", "pass_milliseconds")] == [
        *("200", "2", "0.003", "90", "2")
    ]
    assert (vanilla["n"], vanilla["test_mse"], vanilla["pass_milliseconds"]) == ("400", "0.5", "")


def test_the_figures_draw_the_means_over_the_length(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        masked_summation_page,
        "plot_over_length",
        lambda lines, path, ylabel, **more: drawn.setdefault(path.name, lines) and path,
    )
    write_report(results, results.parent)
    half = [(200, pytest.approx(10 / 12)), (400, pytest.approx(10 / 12))]
    assert drawn == {
        "figure_3a.png": {"star": [(200, pytest.approx(0.003))], "vanilla": [(400, 0.5)], "always k/2": half},
        "figure_3b.png": {"star": [(200, pytest.approx(2.0))]},
    }


def test_equal_files_give_equal_pages_and_pictures(results: Path) -> None:
    made = []
    for name in ("one", "two"):
        write_report(results, results.parent / name)
        made.append({path.name: path.read_bytes() for path in (results.parent / name).iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == {"results.md", "results.csv", "figure_3a.png", "figure_3b.png"}


def test_an_empty_folder_and_one_of_mixed_arguments_give_no_page(results: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run: write --stages train"):
        write_report(tmp_path / "nothing", tmp_path)
    path = results / "star-n200-seed2.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    # Results of later versions tell more arguments.
    run["arguments"]["dataloader_drop_last"] = False
    path.write_text(json.dumps(run), encoding="utf-8")
    write_report(results, tmp_path)
    run["arguments"]["num_train_epochs"] = 1
    path.write_text(json.dumps(run), encoding="utf-8")
    with pytest.raises(UserError, match="holds runs of different arguments"):
        write_report(results, tmp_path)


@pytest.mark.parametrize("file", ["star-n200-seed2.json", "vanilla-n400-seed1.json", "times-n200.json"])
def test_runs_of_different_shapes_give_no_page(results: Path, tmp_path: Path, file: str) -> None:
    """What makes a system what it is, may differ: nothing else."""
    path = results / file
    kept = json.loads(path.read_text(encoding="utf-8"))
    fields = kept["config"]["star"] if file.startswith("times") else kept["config"]
    fields["hidden_size"] = 40
    path.write_text(json.dumps(kept), encoding="utf-8")
    with pytest.raises(UserError, match=r"holds .* of different shapes \(hidden_size .*\): keep those of one shape"):
        write_report(results, tmp_path)


def test_the_command_of_a_run_is_what_was_typed_for_it_alone() -> None:
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
