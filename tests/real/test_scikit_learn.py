"""scikit-learn's own checks of estimators, and files of estimators that other processes read."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import pytest
import skops.io
from sklearn.utils import estimator_checks

from modeling_star import StarClassifier, StarTagger


# Those that need no fit: the others fit matrices of numbers.
CHECKS = [
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]
READ = """
import json, sys
import joblib, skops.io

for path, texts in json.loads(sys.argv[1]):
    if path.endswith("joblib"):
        estimator = joblib.load(path)
    else:
        trusted = skops.io.get_untrusted_types(file=path)
        assert all(name.startswith("modeling_star.") for name in trusted), trusted
        estimator = skops.io.load(path, trusted=trusted)
    print(json.dumps([label if isinstance(label, str) else list(label) for label in estimator.predict(texts)]))
"""


@pytest.mark.parametrize("estimator", [StarClassifier(), StarTagger()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("check", CHECKS)
def test_an_estimator_passes_the_checks_of_scikit_learn(check: str, estimator: Any) -> None:
    getattr(estimator_checks, check)(type(estimator).__name__, estimator)


def test_another_process_predicts_with_files_of_joblib_and_skops(
    classifier: StarClassifier, tagger: StarTagger, tmp_path: Path
) -> None:
    files, expected = [], []
    for estimator, texts in ((classifier, ["dull film", "fine film"]), (tagger, ["Bo sees New York", "Ann moved"])):
        for dump, ending in ((joblib.dump, "joblib"), (skops.io.dump, "skops")):
            path = tmp_path / f"{type(estimator).__name__}.{ending}"
            dump(estimator, path)
            files.append((str(path), texts))
            expected.append(json.dumps(list(estimator.predict(texts))))
    done = subprocess.run([sys.executable, "-c", READ, json.dumps(files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected
