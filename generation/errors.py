"""Every error that minigen raises on purpose.

    MinigenError
    ├── UsageError            what was asked for cannot be done as asked (exit code 2)
    │   ├── ParameterError      a sampling setting out of its range
    │   ├── PromptError         an empty prompt, or one that does not fit the window
    │   ├── PresetError         a preset that is unknown or not valid
    │   ├── SourceError         a model source that is unknown, unsafe or not a causal model
    │   └── DeviceError         a device that this machine does not have
    └── RunError              the run itself failed (exit code 1)
        ├── FetchError          the network, the hub or the disk failed
        │   ├── DiskError         the disk is full or cannot be written
        │   └── HashError         other bytes came than were meant
        ├── OutOfMemory         the device has no room left
        └── NumberError         the model gave logits that are not numbers

A message is one plain sentence: what is wrong, the value, what would be right.
"""

MOST_SHOWN = 200  # characters of a wrong value in a message


class MinigenError(Exception):
    """The base of all errors that minigen raises on purpose."""


class UsageError(MinigenError):
    """What was asked for cannot be done as asked."""


class ParameterError(UsageError):
    """A setting out of its range: `name must be wanted, not value.`"""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        super().__init__(f"{name} must be {wanted}, not {_shown(value)}.")
        self.name, self.value, self.wanted = name, value, wanted


class PromptError(UsageError):
    """A prompt that is empty or does not fit the model's window."""


class PresetError(UsageError):
    """A preset that is unknown or not valid."""


class SourceError(UsageError):
    """A model source that is unknown, unsafe, damaged or not a causal language model."""


class DeviceError(UsageError):
    """A device that this machine does not have."""


class RunError(MinigenError):
    """The run itself failed."""


class FetchError(RunError):
    """The network, the hub or the disk failed while a model was fetched."""


class DiskError(FetchError):
    """The disk is full or cannot be written; no other source is tried."""


class HashError(FetchError):
    """Other bytes came than were meant; no other source is tried."""


class OutOfMemory(RunError):  # noqa: N818 - the field's words
    """The device has no memory left for the model or its cache."""


class NumberError(RunError):
    """The model gave logits that are not numbers."""

    @classmethod
    def of_logits(cls, place: str) -> "NumberError":
        """Give the error of logits that are not finite; place: `at token 3`."""
        return cls(f"The model gave non-finite logits {place}; try --dtype bfloat16 or --dtype float32.")


def first_line(error: Exception) -> str:
    """Name an error's kind, with the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _shown(value: object) -> str:
    """Spell a value on one line, and only the beginning of a long one."""
    text = repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
