#!/usr/bin/env bash
# Question: what does scikit-learn's check_estimator check of an estimator whose tags say that it takes texts?
# Guess: all that needs no matrix: that __init__ sets parameters only, set_params, the repr, the tags, the mixins.
# Seen: one check, that it can be cloned. A class whose __init__ makes another attribute and whose fit returns None and
#   overwrites a parameter passes; with tags for a matrix, the same class fails. Only a SkipTestWarning says so.
# Who meets it: authors of vectorizers and classifiers of texts, whose CI is green; scikit-learn's own CountVectorizer
#   gets the same single check from it. Checks of that module that need no fit can be called one by one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'END'
from importlib.metadata import version

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.estimator_checks import check_estimator


class OfMatrices(ClassifierMixin, BaseEstimator):
    def __init__(self, size=1):
        self.size = size
        self.other = []

    def fit(self, X, y):
        self.size = 2


class OfTexts(OfMatrices):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


print("scikit-learn", version("scikit-learn"))
ran = {}
for estimator in (CountVectorizer(), OfTexts(), OfMatrices()):
    results = check_estimator(estimator, on_fail=None)
    failed = [each["check_name"] for each in results if each["status"] == "failed"]
    ran[type(estimator).__name__] = len(results), len(failed)
    print(type(estimator).__name__, len(results), "checks,", len(failed), "failed:", *failed[:4])
assert ran["CountVectorizer"] == ran["OfTexts"] == (1, 0)
assert ran["OfMatrices"][1] > 5
END
