"""Compiled code is loaded where no other user can have written it, and nowhere else."""

import hashlib
import logging
import os
from pathlib import Path

import pytest

from modeling_star.kernels import cpu_library
from modeling_star.kernels.cpu_library import UnavailableError, build, build_in_background, cache_folder, find


def place(folder: Path) -> Path:
    """A file that is named as the library of the level "plain"."""
    content = b"code"
    path = folder / f"{cpu_library._library_name('plain')}-{hashlib.sha256(content).hexdigest()}.so"
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty cache of a user, two folders below `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cpu_library._warn.cache_clear()
    cache_folder().mkdir(parents=True)
    for folder in (cache_folder(), cache_folder().parent):
        folder.chmod(0o755)
    return cache_folder()


def make_link(path: Path) -> None:
    path.rename(path.parent / "library")
    path.symlink_to(path.parent / "library")


CHANGES = {
    "a file that others may write": lambda path: path.chmod(0o757),
    "a file that the group may write": lambda path: path.chmod(0o775),
    "a link": make_link,
    "a file of another user": lambda path: os.chown(path, 12345, 12345),
    "a folder that others may write": lambda path: path.parent.chmod(0o777),
    "a folder that others may write, sticky": lambda path: path.parent.chmod(0o1777),
    "a folder that the group may write": lambda path: path.parent.chmod(0o775),
    "a folder of another user": lambda path: os.chown(path.parent, 12345, 12345),
    "a folder in one that others may write": lambda path: path.parent.parent.chmod(0o777),
    "a folder in one of another user": lambda path: os.chown(path.parent.parent, 12345, 12345),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_library_that_another_user_can_have_written_is_not_loaded(
    change: str, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if "another user" in change and os.getuid():
        pytest.skip("root alone gives files to others")
    monkeypatch.setenv("CXX", "false")
    path = place(cache)
    assert find("plain") == path
    CHANGES[change](path)
    with caplog.at_level(logging.WARNING, logger="modeling_star"):
        assert find("plain") is None
        if "folder" in change:
            assert not build_in_background("plain")
            assert not [*cache.glob("*.building")]
    # A file is compiled again, in its place; a folder is for the user to change, who is told so once.
    assert len(caplog.records) == ("folder" in change)
    assert all("XDG_CACHE_HOME" in record.getMessage() for record in caplog.records)
    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME" if "folder" in change else "status 1"):
        build("plain")


def test_a_folder_of_ones_own_in_one_that_all_may_write_is_used(cache: Path) -> None:
    path = place(cache)
    cache.parent.chmod(0o1777)  # as /tmp
    assert find("plain") == path


def test_a_link_to_a_folder_of_ones_own_is_followed(cache: Path) -> None:
    path = place(cache)
    cache.rename(cache.parent / "elsewhere")
    cache.symlink_to(cache.parent / "elsewhere")
    assert find("plain") == cache.resolve() / path.name


def test_new_folders_are_for_this_user_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "new" / "folder"))
    monkeypatch.setenv("CXX", "false")
    before = os.umask(0)
    try:
        with pytest.raises(UnavailableError, match="status 1"):
            build("plain")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (cache_folder(), cache_folder().parent)] == [0o700, 0o700]


def test_beside_the_source_a_library_is_as_private_as_the_source(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "cpu.cpp"
    source.write_text(cpu_library.SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(cpu_library, "SOURCE", source)
    path = place(tmp_path)
    source.chmod(0o664)  # as pip writes it under a umask of 2
    path.chmod(0o664)
    assert find("plain") == path
    source.chmod(0o644)
    assert find("plain") is None
