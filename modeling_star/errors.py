"""The error that the command line prints in one line."""


class UserError(ValueError):
    """Input cannot be used as asked: the message says what was given, what is allowed and what to write instead."""


__all__ = ["UserError"]
