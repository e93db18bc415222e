"""What a script tells its user: one line for what is theirs to mend, by one of several processes."""

import errno
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import TrainingArguments

from ..errors import UserError
from .checkpoints import last_checkpoint
from .hub import unreachable_errors


logger = logging.getLogger(__name__)
Result = TypeVar("Result")

_INTERRUPTED = 130  # what a shell tells of a command that Ctrl-C has stopped
_TERMINATED = 143  # and of one that SIGTERM has, as `kill` and schedulers send it
_FULL = 1 << 20  # fewer free bytes than this are a full disk


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which so stops what Ctrl-C stops."""


@contextmanager
def script_messages(training: TrainingArguments) -> Iterator[None]:
    """
    Logging set up; what a user did wrong is told in one message, and where it was raised with --log_level debug.

    Raises:
        SystemExit: instead of a UserError, of a KeyboardInterrupt (Ctrl-C, SIGTERM), or where the disk is full.
    """
    folder = Path(training.output_dir)
    level = logging.DEBUG if training.log_level == "debug" else logging.INFO
    logging.basicConfig(format="%(levelname)s %(message)s", level=level if training.should_log else logging.ERROR)
    for name in ("httpx", "httpcore", "filelock", "fsspec", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and training.device.type == "cpu":
        logger.warning("accelerate shards nothing on the CPU: each process holds the whole model, as under DDP.")
    try:
        # Of several processes one speaks; the others end at once, whatever they wait for.
        with _sigterm_as_ctrl_c() if training.should_log else nullcontext():
            yield
    except UserError as error:
        logger.debug("Where it was raised:", exc_info=True)
        # Of several processes, all of which stop here, one speaks.
        message = f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}"
        raise SystemExit(message if training.should_log else 1) from None
    except KeyboardInterrupt as error:
        logger.debug("Where it was interrupted:", exc_info=True)
        if training.should_log:
            print(f"\n{Path(sys.argv[0]).name}: interrupted. {_what_is_kept(folder)}", file=sys.stderr)
        raise SystemExit(_TERMINATED if isinstance(error, _Terminated) else _INTERRUPTED) from None
    except Exception as error:
        if not _is_full(folder, error):
            raise
        logger.debug("Where it was raised:", exc_info=True)
        raise SystemExit(
            f"{Path(sys.argv[0]).name}: the disk of {folder} is full ({error}). {_what_is_kept(folder)} Make room "
            "first; --save_total_limit 1 keeps fewer checkpoints."
        ) from None


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM is told as Ctrl-C is, where nobody else has seen to it; processes that this one forks end at once."""
    in_main = threading.current_thread() is threading.main_thread()  # no other may
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    own = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == own:
            raise _Terminated
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_full(folder: Path, error: Exception) -> bool:
    """Whether an error is that nothing can be written any more, which torch and safetensors call by other names."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return True
    return folder.is_dir() and shutil.disk_usage(folder).free < _FULL


def _what_is_kept(folder: Path) -> str:
    """What a run can go on from, and how."""
    kept = [checkpoint for checkpoint in map(last_checkpoint, [folder, *sorted(folder.glob("seed-*"))]) if checkpoint]
    if not kept:
        return f"No checkpoint was written to {folder} yet: there is nothing to go on from."
    return f"{kept[-1]} is kept: the same command with --resume_from_checkpoint last goes on from it."


@contextmanager
def as_user_error(*also: type[Exception]) -> Iterator[None]:
    """
    What goes wrong while inputs are read is the user's to mend: a message, no traceback.

    A TypeError is not among it: rows are checked before, so that it is a mistake of ours.

    Args:
        also: further kinds of errors that are the user's to mend here.

    Raises:
        UserError: instead of the ValueError, OSError and the like that was raised inside.
    """
    plain: tuple[type[Exception], ...] = (ValueError, OSError, ImportError, *also)
    try:
        yield
    except UserError:
        raise
    except StrictDataclassError as error:
        raise UserError(str(error.__cause__ or error)) from error
    except plain as error:
        raise UserError(str(error)) from error
    except unreachable_errors() as error:
        raise UserError(
            f"The Hub cannot be reached ({error}): name files and folders of this machine, and leave --push_to_hub "
            "away; run_scripts/push_to_hub.py uploads a finished folder."
        ) from error


def as_main_process(look: Callable[[], Result], training: TrainingArguments) -> Result:
    """
    What `look()` finds on the main process, on all of them: what it looks at may change under the hands of the others.

    Raises:
        UserError: the one that `look` raised there.
    """
    found: Any = None
    problem = None
    if training.process_index == 0:
        try:
            found = look()
        except UserError as error:
            problem = str(error)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        held = [found, problem]
        torch.distributed.broadcast_object_list(held)
        found, problem = held
    if problem is not None:
        raise UserError(problem)
    return found


__all__ = ["as_main_process", "as_user_error", "script_messages"]
