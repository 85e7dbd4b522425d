"""What `--help` shows: plain names, true defaults, only what a command uses, 80 columns."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from seqto.cli import exit_codes
from seqto.cli.main import main
from seqto.cli.option_table import OPTIONS
from seqto.cli.options import EXIT_CODES, make_parser
from seqto.cli.settings import overrides_from
from seqto.config import Settings
from seqto.errors import ConfigError
from seqto.selection.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def help_of(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def parsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = [a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(commands.choices)


COMMANDS = tuple(parsers())


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_into_80_columns(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(*([command] if command else []), capsys=capsys)
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_name_of_a_value_is_one_plain_word(command: str) -> None:
    for action in parsers()[command]._actions:
        if action.nargs != 0 and action.choices is None:
            words = re.fullmatch("[A-Z]+([=/][A-Z]+)?", str(action.metavar))
            assert words, f"{action.option_strings}: {action.metavar}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_with_a_value_says_its_default(command: str) -> None:
    for action in parsers()[command]._actions:
        has_value = action.nargs != 0 and action.option_strings and action.dest != "set"
        if has_value and action.help != argparse.SUPPRESS and not action.required:
            assert "(default: " in str(action.help) or action.dest == "trial", action.dest


def test_the_defaults_in_the_help_are_those_of_the_settings() -> None:
    settings = Settings()
    for option in OPTIONS:
        section, key = option.setting.split(".")
        value = getattr(getattr(settings, section), key)
        if value is None or value == ():
            assert option.default in ("none", "no limit", "first suitable one"), option.name
        else:
            shown = " ".join(value) if isinstance(value, tuple) else str(value)
            shown = {"False": "no"}.get(shown, shown)
            assert option.default == shown, option.name


def test_the_help_of_objectives_names_all_of_them() -> None:
    (option,) = [o for o in OPTIONS if o.name == "--objectives"]
    assert [name for name in OBJECTIVES if name not in option.help] == []


def test_options_come_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("tune", capsys=capsys)
    heads = [line for line in text.splitlines() if line.endswith(":") and line[0].isalpha()]
    assert heads == [
        "options:",
        "model and data:",
        "quantization:",
        "search:",
        "goal:",
        "device:",
        "other settings:",
        "output:",
        "examples:",
    ]


def test_export_lists_only_what_it_uses(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("export", capsys=capsys)
    for used in ("--trial", "--pick", "--data", "--mode", "--exclude", "--device"):
        assert used in text
    for unused in ("--strategy", "--objectives", "--seed", "--max-trials", "--jobs", "--labels"):
        assert unused not in text


def test_a_search_option_of_a_run_is_taken_by_analyze_and_not_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "--max-trials" not in help_of("analyze", capsys=capsys)
    words = ["analyze", "m.onnx", "--out", str(tmp_path), "--strategy", "stepwise"]
    assert getattr(make_parser().parse_args(words), "search.strategy") == "stepwise"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_are_commands(command: str) -> None:
    text = parsers()[command].epilog or ""
    for line in [x.strip() for x in text.splitlines() if x.strip().startswith("seqto ")]:
        assert make_parser().parse_args(shlex.split(line)[1:]).command == command


def test_every_exit_code_is_in_the_help_and_in_the_reference() -> None:
    codes = {v for n, v in vars(exit_codes).items() if n.isupper() and isinstance(v, int)}
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    in_help = set(map(int, re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE)))
    in_reference = set(map(int, re.findall(r"^\| (\d+) \|", reference, re.MULTILINE)))
    assert codes | {0} == in_help == in_reference


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"seqto \d+\.\d+.*\n|seqto 0\+source\n", capsys.readouterr().out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("tune", "diagnose", "max-trials", "want"):
        assert word in script


def test_devices_lists_what_works_first_and_the_rest_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqto.devices import available

    rows = [("ort (provider = 'cuda')", False, available.NOT_BUILT_IN), ("tvm", False, "absent")]
    rows += [
        ("ort (provider = 'cpu')", True, "1.31"),
        ("ort (provider = 'qnn')", False, rows[0][2]),
    ]
    monkeypatch.setattr(available, "usable_devices", lambda: rows)
    assert main(["devices"]) == 0
    said = capsys.readouterr().out
    assert said.index("'cpu'") < said.index("tvm") < said.index("cuda, qnn")


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        (["--within", "1%"], "search.max_loss", "1%"),
        (["--within", "score:2%"], "search.max_score_drop", "2%"),
        (["--max-size", "4MB"], "search.max_size", "4MB"),
    ],
)
def test_a_goal_on_the_command_line_is_a_setting(
    words: list[str], setting: str, value: str
) -> None:
    options = make_parser().parse_args(["tune", "m.onnx", "--out", "x", *words])
    assert overrides_from(options)[setting] == value


def test_a_goal_that_is_not_understood_says_how_to_write_it() -> None:
    options = make_parser().parse_args(["tune", "m.onnx", "--out", "x", "--within", "size:1%"])
    with pytest.raises(ConfigError, match="score:1%"):
        overrides_from(options)
