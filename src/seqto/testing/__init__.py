"""For authors of plug-ins: contract suites, and fakes to test against."""

from seqto.testing.fakes import (
    FakeDevice,
    FakeTask,
    fake_trial,
    small_feeds,
    small_model,
    small_space,
)
from seqto.testing.suites import (
    check_data,
    check_device,
    check_source,
    check_strategy,
    check_task,
)

__all__ = [
    "FakeDevice",
    "FakeTask",
    "check_data",
    "check_device",
    "check_source",
    "check_strategy",
    "check_task",
    "fake_trial",
    "small_feeds",
    "small_model",
    "small_space",
]
