"""What the harness says when it cannot do what was asked; one root, one exit code each."""


class HarnessError(Exception):
    """Root of the harness' own errors. `exit_code` is what the command line leaves with."""

    exit_code = 4


class UsageError(HarnessError):
    """The command names something that is not there."""

    exit_code = 2


class MissingGoldenError(HarnessError):
    """No golden answers the question."""

    exit_code = 3
