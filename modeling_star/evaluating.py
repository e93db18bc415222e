"""A model in evaluation mode for a while, however many threads ask for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn


_lock = threading.Lock()
# How many are within, and the modules that were in train mode before the first came: not always all of a model's.
_users: WeakKeyDictionary[nn.Module, tuple[int, set[str]]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """
    Within it the model is in evaluation mode. The mode that each of its modules was in before comes back when the last
    of several threads leaves: the first to leave would switch dropout on under the others.
    """
    with _lock:
        users, trained = _users.get(model, (0, None))
        if trained is None:
            trained = {name for name, module in model.named_modules() if module.training}
        _users[model] = users + 1, trained
        model.eval()
    try:
        yield
    finally:
        with _lock:
            users, trained = _users.pop(model)
            if users > 1:
                _users[model] = users - 1, trained
            else:
                for name, module in model.named_modules():
                    module.training = name in trained


__all__ = ["evaluating"]
