"""For authors of plug-ins: contract suites, and fakes to test against."""

from seqto.testing.executors import FakeExecutor, InlineExecutor
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
    check_transform,
)

__all__ = [
    "FakeDevice",
    "FakeExecutor",
    "FakeTask",
    "InlineExecutor",
    "check_data",
    "check_device",
    "check_source",
    "check_strategy",
    "check_task",
    "check_transform",
    "fake_trial",
    "small_feeds",
    "small_model",
    "small_space",
]
