"""Pages of studies whose code is gone: every number on them is in a stored run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.stored_runs import RunFile, read_counts

from modeling_star.evaluation.bootstrap import bootstrap_counts, bootstrap_mean
from modeling_star.evaluation.compare import summary
from modeling_star.evaluation.metrics import score_counts


EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
TASKS = {
    **{"MR": "MR", "books": "Books", "kitchen": "Kitchen", "sst2": "SST-2, 3,000 sentences"},
    "ewt": "EWT parts of speech, 2,500 sentences",
}
SYSTEMS = {
    **{"star_plus": "star-plus", "star_plus_2": "star-plus-2", "ngrams": "star-plus with n-grams"},
    **{"ngrams_2": "star-plus-2 with n-grams", "vanilla": "standard Transformer"},
    "vanilla_norm": "standard Transformer, norm on the embeddings",
}
PAIRS = (
    *(("star_plus_2", "star_plus"), ("ngrams_2", "ngrams"), ("vanilla_norm", "vanilla")),
    ("star_plus_2", "vanilla_norm"),
)


def runs_of(name: str) -> dict[str, dict[str, Any]]:
    return RunFile(EXPERIMENTS / "results" / f"{name}.jsonl").read_all()


def page(name: str) -> list[str]:
    """The lines of a page."""
    return (EXPERIMENTS / "pages" / f"{name}.md").read_text(encoding="utf-8").splitlines()


def interval(found: Any) -> str:
    difference, low, high = (100 * number for number in found)
    return f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"


def test_scores_differences_and_attention_of_first_layers_are_on_the_page() -> None:
    runs, lines = runs_of("first_layer"), page("notes")
    for task, title in TASKS.items():
        cells = [runs.get(f"{task}/{system}-seed1") for system in SYSTEMS]
        scores = [f"{100 * run['validation']:.1f}" if run else "" for run in cells]
        assert f"| {' | '.join([title, *scores])} |" in lines
    for one, other in PAIRS:
        shared = [task for task in TASKS if f"{task}/{one}-seed1" in runs and f"{task}/{other}-seed1" in runs]
        counts = [
            ("accuracy", *([read_counts(runs[f"{task}/{name}-seed1"]["counts"])] for name in (one, other)))
            for task in shared
        ]
        names = f"{SYSTEMS[one]} minus {SYSTEMS[other]}"
        assert f"| {names} | {len(shared)} | {interval(bootstrap_mean(counts))} |" in lines
    for name, run in runs.items():
        task, system = name.removesuffix("-seed1").split("/")
        entropies = [
            run[when].get(kind, {}).get("entropy", []) for kind in ("tokens", "relay") for when in ("start", "end")
        ]
        start = run["start"]["tokens"]
        cells = [SYSTEMS[system], TASKS[task], *(", ".join(f"{x:.3f}" for x in values) for values in entropies)]
        cells.append(", ".join(f"{deviation:.2g}" for deviation in start["deviation"]))
        cells.append(f"{start['gradient'][0] / start['gradient'][1]:.2g}")
        assert f"| {' | '.join(cells)} |" in lines
    assert len(runs) == 16


def test_entities_of_works_windows_and_sentences_are_on_the_page() -> None:
    runs, lines = runs_of("litbank"), page("notes")
    whole = np.array(runs["work-1"]["counts"])
    for unit, title in {"work": "whole works", "window": "windows of 256 words", "sentence": "sentences"}.items():
        run = runs[f"{unit}-1"]
        counts = np.array(run["counts"])
        minus = "" if unit == "work" else interval(bootstrap_counts("entity_f1", [counts], [whole]))
        share, minutes = 100 * run["changed"] / run["either"], run["seconds"]["training"] / 60
        score = 100 * score_counts("entity_f1", counts)
        assert f"| {title} | {score:.1f} | {minus} | {share:.1f} % | {minutes:.1f} |" in lines


def test_losses_by_position_are_on_the_page() -> None:
    stored, lines = runs_of("positions")["losses"], page("notes")
    assert (stored["steps"], stored["texts"]) == (128, 160)
    for name, losses in stored["rows"].items():
        assert f"| {' | '.join([name, *(f'{loss:.3f}' for loss, _ in losses)])} |" in lines
        assert max(error for _, error in losses) < 0.075


def test_steps_to_star_plus_are_on_the_pages_of_tables_3_and_5() -> None:
    for name, table, tasks in (
        ("steps_reviews", "table3", ("books/static", "music/static", "MR/static")),
        ("steps_tagging", "table5", ("ewt_pos/none",)),
    ):
        runs, lines = runs_of(name), page(table)
        systems = {run.split("/")[2].removesuffix("-0-seed1") for run in runs}
        for system in systems:
            of_system = [runs[f"{task}/{system}-0-seed1"] for task in tasks]
            scores = [100 * run["validation"] for run in of_system]
            shown = [*scores, *([np.mean(scores)] if len(tasks) > 1 else [])]
            (line,) = [line for line in lines if line.startswith(f"| {system} |")]
            cells = [*(f"{score:.1f}" for score in shown), f"{of_system[0]['parameters'] / 1e6:.2f} M"]
            assert line.endswith(f" | {' | '.join(cells)} |")
        assert len(systems) == len(runs) / len(tasks)


@pytest.mark.parametrize(
    ("task", "metric", "title"),
    [
        ("weibo_ner", "entity_f1", "Weibo entities, F1"),
        ("wnut17", "entity_f1", "WNUT-17 entities, F1"),
        ("ewt_pos", "accuracy", "EWT parts of speech, accuracy"),
    ],
)
def test_defaults_of_taggers_are_on_the_page_of_table_5(task: str, metric: str, title: str) -> None:
    runs, lines = runs_of("entity_defaults"), page("table5")
    of = {system: [runs[f"{task}/none/{system}-0-seed{seed}"] for seed in (1, 2, 3)] for system in ("crf", "plain")}
    counts = {system: [read_counts(run["counts"]) for run in each] for system, each in of.items()}
    scores = [summary([run["test"] for run in each]).removesuffix(" (3)") for each in of.values()]
    minutes = " / ".join(f"{np.mean([run['training_seconds'] for run in each]) / 60:.1f}" for each in of.values())
    difference = interval(bootstrap_counts(metric, counts["crf"], counts["plain"]))
    assert f"| {' | '.join([title, *scores, difference, minutes])} |" in lines
    if "repeated" in of["crf"][0]:
        others = {
            system: [
                np.delete(each, run["repeated"], axis=0) for each, run in zip(counts[system], of[system], strict=True)
            ]
            for system in counts
        }
        scores = [
            summary([score_counts(metric, each) for each in seeds]).removesuffix(" (3)") for seeds in others.values()
        ]
        difference = interval(bootstrap_counts(metric, others["crf"], others["plain"]))
        name = title.rpartition(", ")[0]
        assert f"| {' | '.join([f'{name}, rows not in train', *scores, difference])} | |" in lines
