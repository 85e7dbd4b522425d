"""Greedy generation with a bundle: an encoder, if there is one, and a decoder's loop.

One sequence at a time, so that nothing is padded (a dynamic model answers differently in a batch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ModelError
from seqto.model.wiring import (
    CARRIED,
    DECODER,
    ENCODER,
    FROM_ENCODER,
    IDS,
    MASK,
    NEW,
    PADDING,
    POSITIONS,
    SOURCE,
    TOKEN_MASK,
    TOKENS,
    ZEROS,
    Wiring,
)
from seqto.records import InputSpec

Arrays = Mapping[str, NDArray[Any]]
RunComponent = Callable[[Arrays], Arrays]  # inputs by name → outputs by name
Tokens = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Component:
    """One model of a bundle, ready to run."""

    inputs: Mapping[str, InputSpec]
    run: RunComponent


@dataclass(frozen=True, slots=True)
class State:
    """A sequence that is being generated."""

    source: Tokens
    encoded: Arrays  # the encoder's outputs
    tokens: tuple[int, ...] = ()
    carried: Arrays | None = None  # the decoder's outputs of the step before

    def after(self, token: int, outputs: Arrays) -> State:
        return State(self.source, self.encoded, (*self.tokens, token), outputs)


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the decoder."""

    feeds: Arrays
    outputs: Arrays
    logits: Floats  # of the next token


@dataclass(frozen=True, slots=True)
class Generated:
    """A sequence, and the choices along the sequence that was followed: its own, or float's."""

    tokens: Tokens  # with the token that ended it
    choices: Tokens  # the most likely token at each position
    probabilities: tuple[Floats, ...]  # of all tokens, at each position


class Generator:
    """Runs the loop of a bundle's components."""

    def __init__(self, wiring: Wiring, components: Mapping[str, Component]) -> None:
        self.wiring, self._parts = wiring, components

    def generate(self, source: Tokens, follow: Tokens | None = None) -> Generated:
        """Generate for one source of ids.

        With `follow` (float's tokens) the decoder first runs along these, which gives its choice at
        each of their positions, and goes on by itself from the first choice that is another one:
        the sequence is what it generates alone.
        """
        choices: list[int] = []
        probabilities: list[Floats] = []
        branch: State | None = None
        state = State(source, self._encode(source))
        length = self.wiring.max_length if follow is None else len(follow)
        while len(state.tokens) < length:
            step = self._step(state)
            choice = self._choose(step.logits, len(state.tokens))
            choices.append(choice)
            probabilities.append(softmax(step.logits))
            followed = choice if follow is None else int(follow[len(state.tokens)])
            if choice != followed and branch is None:
                branch = state.after(choice, step.outputs)
            state = state.after(followed, step.outputs)
            if follow is None and choice in self.wiring.stop:
                break
        tokens = self._finish(state if branch is None else branch)
        return Generated(
            np.array(tokens, np.int64), np.array(choices, np.int64), tuple(probabilities)
        )

    def _finish(self, state: State) -> tuple[int, ...]:
        while state.tokens[-1] not in self.wiring.stop:
            if len(state.tokens) >= self.wiring.max_length:
                break
            step = self._step(state)
            state = state.after(self._choose(step.logits, len(state.tokens)), step.outputs)
        return state.tokens

    def steps(self, source: Tokens) -> Iterator[tuple[Arrays, Step]]:
        """Generate, and yield the encoder's feeds with each step of the decoder."""
        state = State(source, self._encode(source))
        feeds = self._encoder_feeds(source)
        while len(state.tokens) < self.wiring.max_length:
            step = self._step(state)
            yield feeds, step
            state = state.after(self._choose(step.logits, len(state.tokens)), step.outputs)
            if state.tokens[-1] in self.wiring.stop:
                return

    def _choose(self, logits: Floats, length: int) -> int:
        """Return the most likely token; none that ends the sequence before `min_length`."""
        if length < self.wiring.min_length:
            logits = logits.copy()
            logits[list(self.wiring.stop)] = -np.inf
        return int(np.argmax(logits))

    # ------------------------------------------------------------------------------- components

    def _encoder_feeds(self, source: Tokens) -> Arrays:
        return {
            name: _typed(_of_source(word, source), self._parts[ENCODER].inputs[name])
            for name, word in self.wiring.encoder.items()
        }

    def _encode(self, source: Tokens) -> Arrays:
        if not self.wiring.encoder:
            return {}
        return self._parts[ENCODER].run(self._encoder_feeds(source))

    def _step(self, state: State) -> Step:
        """Run the decoder once, behind the tokens so far."""
        decoder = self._parts[DECODER]
        feeds = {
            name: _typed(self._feed(word, state, decoder.inputs[name]), decoder.inputs[name])
            for name, word in self.wiring.decoder.items()
        }
        outputs = decoder.run(feeds)
        logits = np.asarray(outputs[self.wiring.logits])
        if logits.ndim not in (2, 3) or len(logits) != 1 or 0 in logits.shape:
            raise ModelError(
                f"output {self.wiring.logits!r} of the decoder has shape {list(logits.shape)}, but "
                "logits are [batch, vocabulary] or [batch, tokens, vocabulary]: name another one "
                "with task.decoder.output.logits"
            )
        last = logits[0] if logits.ndim == 2 else logits[0, -1]
        if max(self.wiring.stop) >= len(last):
            raise ModelError(
                f"task.stop names token {max(self.wiring.stop)}, but output "
                f"{self.wiring.logits!r} of the decoder has logits of {len(last)} tokens only"
            )
        return Step(feeds, outputs, last.astype(np.float32))

    def _feed(self, word: str, state: State, spec: InputSpec) -> NDArray[Any]:
        start = state.source.tolist() if self.wiring.start is None else [self.wiring.start]
        prefix = np.array([[*start, *state.tokens]], np.int64)
        known = prefix.shape[1] - 1 if state.tokens else 0  # tokens that a cache holds
        link, _, output = word.partition(":")
        if word in (TOKENS, TOKEN_MASK):
            return prefix if word == TOKENS else np.ones_like(prefix)
        if word == NEW:
            return prefix[:, known:]
        if word == POSITIONS:
            return np.arange(known if self.wiring.has_cache else 0, prefix.shape[1])[None]
        if link == FROM_ENCODER:
            return state.encoded[output]
        if link == CARRIED:
            return _carried(output, state, spec)
        return _of_source(word, state.source)


def _carried(output: str, state: State, spec: InputSpec) -> NDArray[Any]:
    """Return what is carried into a step; into the first one an empty cache, or zeros."""
    if state.carried is not None:
        return state.carried[output]
    if output in state.encoded:
        return state.encoded[output]
    shape = (1, *(0 if side is None else side for side in spec.shape[1:]))
    return np.zeros(shape, np.dtype(spec.dtype))


def _of_source(word: str, source: Tokens) -> NDArray[Any]:
    ids = np.asarray(source, np.int64)[None]
    if word == MASK:
        return np.ones_like(ids)
    if word in (PADDING, ZEROS):
        return np.zeros_like(ids)
    if word in (IDS, SOURCE):
        return ids
    raise ModelError(f"no input can be fed {word!r}")


def _typed(value: NDArray[Any], spec: InputSpec) -> NDArray[Any]:
    return np.ascontiguousarray(value, dtype=np.dtype(spec.dtype))


def softmax(logits: Floats) -> Floats:
    """Return the probabilities of logits (or of log-probabilities); zeros where none is finite."""
    finite = np.nan_to_num(logits.astype(np.float64), nan=-np.inf, neginf=-np.inf, posinf=np.inf)
    top = float(finite.max(initial=-np.inf))
    if not np.isfinite(top):
        return np.zeros(logits.shape, np.float32)
    weights = np.exp(finite - top)
    return np.asarray(weights / weights.sum(), np.float32)
