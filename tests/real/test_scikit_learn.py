"""scikit-learn's own checks of estimators, and files of estimators that other processes read."""

from typing import Any

import pytest
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
{imports}
print(json.dumps([[str(label) for label in labels] for labels in {load}.predict({texts})]))
"""


@pytest.mark.parametrize("estimator", [StarClassifier(), StarTagger()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("check", CHECKS)
def test_an_estimator_passes_the_checks_of_scikit_learn(check: str, estimator: Any) -> None:
    getattr(estimator_checks, check)(type(estimator).__name__, estimator)
