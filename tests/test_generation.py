"""Greedy generation with a bundle's components, alone and along another model's tokens."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bundles
from seqto.devices.bundle import FOLLOWED, NO_TOKEN, BundleDevice, GenerationSession
from seqto.devices.ort import Ort
from seqto.errors import ConfigError, DeviceError, ModelError
from seqto.model.bundle import merge
from seqto.model.files import to_bytes
from seqto.model.generation import Component, Generator, softmax
from seqto.model.wiring import Wiring
from seqto.records import InputSpec

LENGTH = 20
WORDS = st.text(bundles.LETTERS, min_size=1, max_size=9)


def wiring(*, cache: bool = False, memory: bool = True, **changes: Any) -> Wiring:
    tables = bundles.wiring(cache=cache, memory=memory)
    words = {k: v for k, v in tables["decoder"].items() if k != "output"}
    start = bundles.START if memory else None
    fields = {"start": start, "max_length": LENGTH, **changes}
    return Wiring(words, "logits", (bundles.STOP,), tables["encoder"], **fields)


@lru_cache
def session(
    *, cache: bool = False, memory: bool = True, seed: int = 1, last: bool = False
) -> GenerationSession:
    made = {"encoder": bundles.encoder()} if memory else {}
    made["decoder"] = bundles.decoder(cache=cache, memory=memory, seed=seed, all_positions=last)
    device = BundleDevice(Ort(), wiring(cache=cache, memory=memory))
    return device.open(to_bytes(merge(made)), threads=1)


def generated(opened: GenerationSession, word: str, followed: Any = None) -> list[Any]:
    feeds = {"ids": bundles.ids(word)[None]}
    if followed is not None:
        feeds[FOLLOWED] = np.asarray(followed)[None]
    return [output[0] for output in opened.run(feeds)]


def by_hand(word: str) -> list[int]:
    """Generate with the decoder's weights in numpy, to check the loop against."""
    w = {t.name: _array(t) for t in bundles.encoder().graph.initializer}
    memory = np.tanh(w["embedding"][bundles.ids(word)] @ w["w"] + w["b"])
    w = {t.name: _array(t) for t in bundles.decoder().graph.initializer}
    tokens = [bundles.START]
    while len(tokens) <= LENGTH:
        x = w["embedding"][tokens]
        query = x[-1] @ w["wq"]
        h = softmax(query @ (x @ w["wk"]).T) @ (x @ w["wv"]) + softmax(query @ memory.T) @ memory
        logits = np.tanh(h @ w["wo"] + w["bo"]) @ w["out"] + w["ramp"] * len(tokens)
        tokens.append(int(np.argmax(logits)))
        if tokens[-1] == bundles.STOP:
            break
    return tokens[1:]


def _array(tensor: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)


@pytest.mark.parametrize("word", bundles.words(12))
def test_the_loop_does_what_the_weights_say(word: str) -> None:
    tokens = generated(session(), word)[0]
    assert tokens[tokens != NO_TOKEN].tolist() == by_hand(word)


@pytest.mark.parametrize("memory", [True, False])
@given(word=WORDS)
@settings(max_examples=30, deadline=None)
def test_with_and_without_a_cache_the_sequence_is_the_same(memory: bool, word: str) -> None:
    plain = generated(session(memory=memory), word)
    for other in (session(memory=memory, cache=True), session(memory=memory, last=True)):
        found = generated(other, word)
        assert np.array_equal(found[0], plain[0])
        assert np.allclose(found[2], plain[2], atol=1e-5)


@pytest.mark.parametrize("cache", [True, False])
@given(word=WORDS, follow=st.lists(st.integers(3, bundles.VOCABULARY - 1), min_size=1, max_size=9))
@settings(max_examples=40, deadline=None)
def test_along_any_tokens_the_sequence_is_what_it_generates_alone(
    cache: bool, word: str, follow: list[int]
) -> None:
    opened = session(cache=cache)
    alone = generated(opened, word)
    along = generated(opened, word, follow)
    assert np.array_equal(along[0], alone[0])
    assert (along[1] != NO_TOKEN).sum() == len(follow)


@given(word=WORDS)
@settings(max_examples=20, deadline=None)
def test_along_its_own_tokens_nothing_differs(word: str) -> None:
    alone = generated(session(), word)
    along = generated(session(), word, alone[0])
    assert all(np.array_equal(a, b) for a, b in zip(alone, along, strict=True))


@pytest.mark.parametrize("word", bundles.words(4))
def test_along_a_part_of_its_own_tokens_it_goes_on_to_the_end(word: str) -> None:
    alone = generated(session(), word)
    own = alone[0][alone[0] != NO_TOKEN]
    assert len(own) > 1
    for count in range(1, len(own) + 1):
        assert np.array_equal(generated(session(), word, own[:count])[0], alone[0])


def test_a_sequence_that_max_length_cuts_is_the_same_along_itself() -> None:
    rules = Wiring({"tokens": "tokens"}, "logits", (0,), start=1, max_length=5)
    generator = Generator(rules, _constant([1.0, 3.0, 2.0]))  # never the stop token
    alone = generator.generate(np.array([1]))
    assert alone.tokens.tolist() == [1] * 5
    along = generator.generate(np.array([1]), alone.tokens)
    assert along.tokens.tolist() == along.choices.tolist() == [1] * 5


def test_the_choices_along_are_those_of_the_other_model() -> None:
    """At each position: the other model's next token behind the first model's tokens."""
    word = "abcde"
    own = generated(session(), word)[0]
    own = own[own != NO_TOKEN]
    choices = generated(session(seed=8), word, own)[1]
    other = session(seed=8)
    for place in range(len(own)):
        prefix = generated(other, word, own[: place + 1])[1]
        assert prefix[place] == choices[place]
    assert (choices[: len(own)] != own).any()


def _constant(logits: list[float]) -> dict[str, Component]:
    value = np.array([logits], np.float32)
    tokens = InputSpec("tokens", (None, None), "int64")
    return {"decoder": Component({"tokens": tokens}, lambda _feeds: {"logits": value})}


def test_no_token_ends_a_sequence_before_min_length() -> None:
    rules = Wiring({"tokens": "tokens"}, "logits", (0,), start=1, min_length=2, max_length=5)
    found = Generator(rules, _constant([3.0, 1.0, 2.0])).generate(np.array([1]))
    assert found.tokens.tolist() == [2, 2, 0]


def test_a_sequence_ends_at_max_length() -> None:
    rules = Wiring({"tokens": "tokens"}, "logits", (0,), start=1, max_length=4)
    found = Generator(rules, _constant([0.0, 1.0])).generate(np.array([1]))
    assert found.tokens.tolist() == [1, 1, 1, 1]


def test_logits_of_a_shape_that_is_none_are_refused() -> None:
    rules = Wiring({"tokens": "tokens"}, "logits", (0,), start=1)
    components = _constant([0.0, 1.0])
    flat = Component(
        components["decoder"].inputs, lambda _feeds: {"logits": np.zeros(3, np.float32)}
    )
    with pytest.raises(ModelError, match=r"has shape \[3\]"):
        Generator(rules, {"decoder": flat}).generate(np.array([1]))


def test_a_stop_token_beyond_the_vocabulary_is_refused() -> None:
    for least in (0, 2):
        rules = Wiring({"tokens": "tokens"}, "logits", (0, 9), start=1, min_length=least)
        with pytest.raises(ModelError, match=r"task.stop names token 9, .* 2 tokens only"):
            Generator(rules, _constant([0.0, 1.0])).generate(np.array([1]))


def test_numbers_that_are_none_have_no_probability() -> None:
    assert softmax(np.array([np.nan, 0, 0], np.float32)).tolist() == [0, 0.5, 0.5]
    assert softmax(np.array([np.nan, -np.inf], np.float32)).tolist() == [0, 0]


def test_a_part_that_fails_is_named() -> None:
    rules = wiring()
    opened = BundleDevice(Ort(), rules).open(
        {"encoder": to_bytes(bundles.encoder()), "decoder": to_bytes(bundles.decoder())}, threads=1
    )
    with pytest.raises(DeviceError, match="encoder: "):
        opened.run({"ids": np.array([[999]])})


def test_a_cache_has_phases_that_are_timed() -> None:
    feeds = {"ids": bundles.ids("abcdef")[None]}
    assert session().time_ms(feeds) > 0
    assert session().figures() == {}
    whole = session(cache=True).time_ms(feeds)
    phases = session(cache=True).figures()
    assert set(phases) == {"prefill_ms", "per_token_ms"}
    assert 0 < phases["per_token_ms"] < whole


INPUTS = {"encoder": ("ids",), "decoder": ("tokens", "memory")}
OUTPUTS = {"encoder": ("memory",), "decoder": ("logits",)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {}}, r"\[task.encoder\] is missing"),
        ({"encoder": {"id": "ids"}}, r"task.encoder.id is no input .*did you mean 'ids'"),
        ({"encoder": {"ids": "idz"}}, r"task.encoder.ids = 'idz' is none of ids, mask"),
        ({"decoder": {"tokens": "tokens"}}, r"task.decoder.memory is missing"),
        (
            {"decoder": {"tokens": "tokens", "memory": "encoder:memry"}},
            r"there is no such output.*did you mean 'memory'",
        ),
        (
            {"decoder": {"tokens": "tokens", "memory": "carry:state"}},
            r"there is no such output.*there is logits",
        ),
        ({"logits": "scores"}, r"task.decoder.output.logits = 'scores' is no output"),
    ],
)
def test_a_wiring_that_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    fields = {**wiring().to_json(), **changes}
    with pytest.raises(ConfigError, match=message):
        Wiring.from_json(fields).check(INPUTS, OUTPUTS)


def test_a_wiring_is_json() -> None:
    for rules in (wiring(cache=True), wiring(memory=False)):
        assert Wiring.from_json(rules.to_json()) == rules
