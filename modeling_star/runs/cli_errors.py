"""
How a command ends: one line for an error that a user can fix, for an interruption and for a full disk; Python's
traceback for everything else.
"""

import errno
import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UserError, missing_package


# `predict` with a model in ONNX Runtime has its messages here too: it imports no torch for them.
if TYPE_CHECKING:
    from transformers import TrainingArguments


logger = logging.getLogger(__name__)
Result = TypeVar("Result")

# The exit codes of a shell for Ctrl-C and for SIGTERM, which `kill` and schedulers send.
_INTERRUPTED, _TERMINATED = 130, 143
_FULL = 1 << 20  # a disk with fewer free bytes is full


class _Terminated(KeyboardInterrupt):
    """SIGTERM, treated as a KeyboardInterrupt."""


@contextmanager
def script_messages(training: "TrainingArguments") -> Iterator[None]:
    """Set up logging, and the messages of `command_messages` for a run."""
    folder = Path(training.output_dir)
    level = logging.DEBUG if training.log_level == "debug" else logging.INFO
    logging.basicConfig(format="%(levelname)s %(message)s", level=level if training.should_log else logging.ERROR)
    for name in ("httpx", "httpcore", "filelock", "fsspec", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and training.device.type == "cpu":
        logger.warning("accelerate does not shard on a CPU: each process holds the whole model, as under DDP.")
    with command_messages(
        Path(sys.argv[0]).name,
        folder,
        log_level=training.log_level,
        next_time=lambda: _how_to_resume(folder),
        is_main=training.should_log,
    ):
        yield


@contextmanager
def command_messages(
    command: str,
    output: Path | None = None,
    *,
    log_level: str = "info",
    next_time: Callable[[], str] = lambda: "Nothing was written.",
    is_main: bool = True,
) -> Iterator[None]:
    """
    Print errors of input (UserError, OSError, a package that is not installed), an interruption (Ctrl-C, SIGTERM) and
    a full disk as one line, in a SystemExit. Any other error is of the code, and is not changed. `output` is what the
    command writes, and `next_time` says what the same command does after an interruption.
    """
    try:
        # SIGTERM ends the processes that do not print at once.
        with _sigterm_as_interrupt() if is_main else nullcontext():
            yield
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        if is_main:
            print(f"\n{command}: interrupted. {next_time()}", file=sys.stderr)
        raise SystemExit(_TERMINATED if isinstance(error, _Terminated) else _INTERRUPTED) from None
    except Exception as error:
        # Path.is_dir raises an error where a folder may not be searched, os.path.isdir does not.
        folder = output if output is None or os.path.isdir(output) else output.resolve().parent
        message = " ".join(str(error).split())
        if folder is not None and not isinstance(error, UserError) and _is_full(error, folder):
            message = f"the disk of {folder} is full ({error}). {next_time()} Free some space first."
        elif isinstance(error, ModuleNotFoundError) and error.name is not None:
            message = missing_package(error)
        elif not isinstance(error, (UserError, OSError, ImportError)):
            raise
        if log_level == "debug":
            traceback.print_exception(error)
        raise SystemExit(f"{command}: {message}" if is_main else 1) from None


def _is_full(error: Exception, folder: Path) -> bool:
    """Whether a command ended because it filled the disk, for which torch and safetensors have errors of their own."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return os.path.isdir(folder) and shutil.disk_usage(folder).free < _FULL


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as a KeyboardInterrupt, unless it has another handler; forked processes end at once."""
    in_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == process:
            raise _Terminated
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _how_to_resume(folder: Path) -> str:
    from ..training.checkpoints import last_checkpoint

    checkpoints = list(filter(None, map(last_checkpoint, [folder, *sorted(folder.glob("seed-*"))])))
    if not checkpoints:
        return f"No checkpoint was written to {folder} yet."
    return f"{checkpoints[-1]} is kept: add --resume_from_checkpoint last to the command to resume from it."


@contextmanager
def as_user_error(*also: type[Exception]) -> Iterator[None]:
    """
    Turn a ValueError, OSError and the like, and errors of other kinds that a user can fix here, into a UserError. A
    TypeError is not among them: it is a bug of this package.
    """
    from huggingface_hub.errors import StrictDataclassError

    from ..sources import unreachable_errors

    kinds: tuple[type[Exception], ...] = (ValueError, OSError, ImportError, *also)
    try:
        yield
    except UserError:
        raise
    except StrictDataclassError as error:
        raise UserError(str(error.__cause__ or error)) from error
    except kinds as error:
        raise UserError(str(error)) from error
    except unreachable_errors() as error:
        raise UserError(
            f"The Hub cannot be reached ({error}): name local files and folders, and omit --push_to_hub."
        ) from error


def as_main_process(look: Callable[[], Result], training: "TrainingArguments") -> Result:
    """Call `look()` on the main process alone, and return its result, or raise its UserError, on all processes."""
    import torch

    result: Any = None
    problem = None
    if training.process_index == 0:
        try:
            result = look()
        except UserError as error:
            problem = str(error)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        shared = [result, problem]
        torch.distributed.broadcast_object_list(shared)
        result, problem = shared
    if problem is not None:
        raise UserError(problem)
    return result
