"""The language of texts by their characters and frequent words."""

import pytest

from modeling_star.data.writing_systems import language_of


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["The film is a wonderful surprise, and that was the best of it."], "en"),
        ([["She", "was", "with", "the", "band", "for", "years"]], "en"),
        (["Der Film war in der Mitte zu lang, und das Ende ist gut."], None),
        (["酒店的位置很好。", "OK, wifi 也不错"], "zh"),
        (["東京へ行きました。とても楽しかったです。"], "ja"),
        (["서울은 한국의 수도이다."], "ko"),
        (["Le film est trop long, mais la fin est une surprise pour tous."], None),
        (["123 456"], None),
        ([], None),
    ],
)
def test_languages_are_detected_or_left_out(texts: list[str], language: str | None) -> None:
    assert language_of(texts) == language
