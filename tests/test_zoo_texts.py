"""Real text models: configs as they are, padded batches, perplexity computed another way.

The large models are not kept with the zoo: SEQTO_ZOO_MODELS names the folder they were fetched to.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from seqto import config
from seqto.model.inputs import input_specs
from seqto.model.ort_session import open_session
from seqto.model.sources.source import Fetched
from seqto.study.setup import make_setup
from seqto.study.workspace import build_store
from seqto.tasks import scoring
from test_zoo import ZOO

MODELS = Path(os.environ.get("SEQTO_ZOO_MODELS", ZOO))
pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.is_dir(), reason="no ../shared/zoo with the real models"),
]


class Inputs:
    """As much of a prepared model as a sample store needs."""

    def __init__(self, proto):
        self.inputs = input_specs(proto)


def opened(name: str, folder: Path, **changes):
    import onnx

    place = next((p for p in (ZOO, MODELS) if (p / f"{name}.onnx").is_file()), None)
    if place is None:
        pytest.skip(f"{name}.onnx is not fetched: set SEQTO_ZOO_MODELS")
    model = place / f"{name}.onnx"
    few = {"data.calibration": 4, "data.evaluation": 24, "data.report": 0, "model.path": str(model)}
    tables = config.read_toml(ZOO / f"{name}.toml")
    tokenizer = place / f"{name}.tokenizer.json"
    few["data.tokenizer.file"] = str(tokenizer)
    settings = config.make(tables, {**few, **changes})
    setup = make_setup(Fetched(name, str(model), {"kind": "file"}), folder / "out", settings)
    proto = onnx.load(model, load_external_data=False)
    return setup, build_store(setup, Inputs(proto), folder / "samples"), open_session(str(model))


def decoded(setup, store, session, *, batch):
    """Answers of the evaluation split by the sample's name."""
    names, found = store.names("evaluation"), {}
    for start in range(0, len(names), batch):
        rows = list(range(start, min(start + batch, len(names))))
        for run in store.runs("evaluation", rows):
            outputs = [session.run(None, dict(run.batch))[0]]
            answers = scoring.decode(setup.task, outputs, batch=run.batch).answers
            for place, position in enumerate(run.positions):
                found[names[rows[position]], run.side] = answers.take(np.array([place]))
    return found


@pytest.mark.parametrize(
    ("name", "value"), [("sentiment", "class"), ("minilm", "vector"), ("stories260k", "token")]
)
def test_a_padded_batch_gives_the_answers_of_single_samples(name, value, tmp_path):
    one = decoded(*opened(name, tmp_path / "one"), batch=1)
    several = decoded(*opened(name, tmp_path / "several", **{"data.batch": 8}), batch=8)
    assert one.keys() == several.keys()
    for key, answers in one.items():
        np.testing.assert_allclose(
            several[key].values[value], answers.values[value], atol=1e-4, err_msg=str(key)
        )


def test_perplexity_of_stories_computed_another_way(tmp_path):
    from tokenizers import Tokenizer

    setup, store, session = opened("stories260k", tmp_path, **{"data.evaluation": 6})
    found = decoded(setup, store, session, batch=1)
    losses = np.concatenate([a.values["loss"] for a in found.values()])
    tokenizer = Tokenizer.from_file(str(ZOO / "stories260k.tokenizer.json"))
    total, count = 0.0, 0
    for row in range(6):
        ids = store.pick("evaluation", [row])["tokens"][0].tolist()
        text = tokenizer.decode(ids)
        assert tokenizer.encode(text).ids[: len(ids)] == ids
        (logits,) = session.run(None, {"tokens": np.array([ids])})
        logs = logits[0].astype(np.float64)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
        total -= sum(logs[i, token] for i, token in enumerate(ids[1:]))
        count += len(ids) - 1
    assert losses.mean() == pytest.approx(total / count, rel=1e-5)
