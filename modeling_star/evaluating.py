"""A model in evaluation mode for a while, however many threads ask for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn


_lock = threading.Lock()
_users: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """
    Within it the model is in evaluation mode. The mode that it was in before comes back when the last of several
    threads leaves: the first to leave would switch dropout on under the others.
    """
    with _lock:
        users, was_training = _users.get(model, (0, model.training))
        _users[model] = users + 1, was_training
        model.eval()
    try:
        yield
    finally:
        with _lock:
            users, was_training = _users.pop(model)
            if users > 1:
                _users[model] = users - 1, was_training
            else:
                model.train(was_training)


__all__ = ["evaluating"]
