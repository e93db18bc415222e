"""A model in evaluation mode for a while, however many threads ask for it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn


_lock = threading.Lock()
# How many are within, and the modes before the first came: those of a model's modules need not be alike.
_users: WeakKeyDictionary[nn.Module, tuple[int, dict[nn.Module, bool]]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """
    Within it the model is in evaluation mode. The mode that each of its modules was in before comes back when the last
    of several threads leaves: the first to leave would switch dropout on under the others.
    """
    with _lock:
        if model in _users:
            users, modes = _users[model]
        else:
            users, modes = 0, {module: module.training for module in model.modules()}
        _users[model] = users + 1, modes
        model.eval()
    try:
        yield
    finally:
        with _lock:
            users, modes = _users.pop(model)
            if users > 1:
                _users[model] = users - 1, modes
            else:
                # Parents first, since train() is for all that is inside; and a module may do more in it.
                model.train(modes[model])
                for module in model.modules():
                    if module.training != modes.get(module, module.training):
                        module.train(modes[module])


__all__ = ["evaluating"]
