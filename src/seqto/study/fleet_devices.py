"""The devices of a run: one, or several that every trial is judged on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from seqto import plugins
from seqto.config import DeviceSettings, Settings
from seqto.devices.device import Device
from seqto.errors import ConfigError, nearest
from seqto.records import WORST, Json, Layer
from seqto.schemes.scheme import Scheme
from seqto.study.build_plugins import with_fields


@dataclass(frozen=True, slots=True)
class RunDevice:
    """One device of a run, under the name that reports call it by."""

    name: str
    settings: DeviceSettings
    device: Device
    json: Json  # from which workers build it

    def describe(self) -> Json:
        """Return what identifies it in a report."""
        said: Json = {**self.device.describe(), "name": self.name}
        if self.settings.launcher:
            said["launcher"] = list(self.settings.launcher)
        return said


def run_devices(settings: Settings) -> tuple[RunDevice, ...]:
    """Build the devices that settings name; each has a name of its own."""
    devices = []
    for one in (settings.device, *settings.devices):
        device: Device = with_fields(plugins.DEVICES, one.kind, {}, one.settings, section="device")
        check_launcher(one.launcher)
        json = {"kind": one.kind, **one.settings}
        devices.append(RunDevice(one.name or device.name, one, device, json))
    names = [one.name for one in devices]
    for name in names:
        if names.count(name) > 1 or name == WORST:
            raise ConfigError(
                f"two devices are called {name!r}: give each [[device]] a name of its own"
                if name != WORST
                else f"no device can be called {WORST!r}: give it another name"
            )
    chosen = settings.search.latency_of
    if chosen != WORST and chosen not in names:
        raise ConfigError(
            f"search.latency_of = {chosen!r} is no device of this run{nearest(chosen, names)}: "
            f"it has {', '.join(names)}; or write {WORST!r}"
        )
    if settings.executor.kind != "local" and (len(devices) > 1 or settings.device.launcher):
        raise ConfigError(
            "several devices and device.launcher need executor.kind = local: their workers are "
            "started on this machine"
        )
    return tuple(devices)


def check_launcher(launcher: Sequence[str]) -> None:
    """Refuse a launcher that is no command of this machine."""
    if launcher and shutil.which(launcher[0]) is None:
        raise ConfigError(
            f"device.launcher = {launcher[0]!r} is no command here: give the path of a program "
            "that can be executed, then its arguments"
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """The limits of all devices of a run together, for the choice of schemes."""

    devices: tuple[RunDevice, ...]

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        """Return why one of the devices cannot run a layer so; of several, with its name."""
        for one in self.devices:
            reason = one.device.refuses(layer, scheme)
            if reason is not None:
                return reason if len(self.devices) == 1 else f"on {one.name}: {reason}"
        return None
