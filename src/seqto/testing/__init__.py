"""Fakes and contract suites for plug-in authors."""

from seqto.testing.fakes import (
    FakeDevice,
    FakeSession,
    FakeTask,
    InlinePool,
    fake_trial,
    small_feeds,
    small_model,
    small_space,
)
from seqto.testing.suites import check_data, check_device, check_strategy, check_task

__all__ = [
    "FakeDevice",
    "FakeSession",
    "FakeTask",
    "InlinePool",
    "check_data",
    "check_device",
    "check_strategy",
    "check_task",
    "fake_trial",
    "small_feeds",
    "small_model",
    "small_space",
]
