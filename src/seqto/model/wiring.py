"""Words that say what each input of a bundle's components is fed while it generates.

    encoder                       decoder
    ids       the source's ids    tokens          start token, or the source, and all tokens so far
    mask      1 for every id      new             of these, what the decoder has not been fed yet
    padding   false for every id  positions       the positions of what it is fed
    zeros     0 for every id      token-mask      1 for all tokens so far
                                  source, mask, padding, zeros        the source again
                                  encoder:NAME    an output of the encoder
                                  carry:NAME      an output of the step before; at first the
                                                  encoder's output of that name, else empty or zeros

A bundle without an encoder continues its source. A decoder with a cache takes `new` and carries its
`present` outputs to its `past` inputs; one without a cache takes `tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.errors import ConfigError, nearest
from seqto.records import Json

ENCODER, DECODER = "encoder", "decoder"
IDS, SOURCE = "ids", "source"
TOKENS, NEW, POSITIONS, TOKEN_MASK = "tokens", "new", "positions", "token-mask"
MASK, PADDING, ZEROS = "mask", "padding", "zeros"
FROM_ENCODER, CARRIED = "encoder", "carry"  # before a colon and the name of an output

WORDS: Mapping[str, tuple[str, ...]] = {
    ENCODER: (IDS, MASK, PADDING, ZEROS),
    DECODER: (TOKENS, NEW, POSITIONS, TOKEN_MASK, SOURCE, MASK, PADDING, ZEROS),
}

Names = Mapping[str, tuple[str, ...]]  # component → names of its inputs or outputs


@dataclass(frozen=True, slots=True)
class Wiring:
    """Sources of the inputs of a bundle's components, and the end of a sequence."""

    decoder: Mapping[str, str]  # input → word
    logits: str  # the decoder's output: [1, vocabulary] or [1, tokens, vocabulary]
    stop: tuple[int, ...]
    encoder: Mapping[str, str] = field(default_factory=dict)  # empty: there is none
    start: int | None = None  # None: the source is continued
    min_length: int = 0
    max_length: int = 64

    @property
    def has_cache(self) -> bool:
        """Whether the decoder is fed new tokens only."""
        return NEW in self.decoder.values()

    def to_json(self) -> Json:
        return {
            "decoder": dict(self.decoder),
            "logits": self.logits,
            "stop": list(self.stop),
            "encoder": dict(self.encoder),
            "start": self.start,
            "min_length": self.min_length,
            "max_length": self.max_length,
        }

    @classmethod
    def from_json(cls, data: Json) -> Wiring:
        return cls(**{**data, "stop": tuple(data["stop"])})

    def check(self, inputs: Names, outputs: Names) -> None:
        """Refuse what does not fit the components of a bundle."""
        words = {DECODER: self.decoder, **({ENCODER: self.encoder} if self.encoder else {})}
        for component in words:
            if component not in inputs:
                known = ", ".join(inputs)
                raise ConfigError(f"[task.{component}] is set, but model.bundle has only {known}")
        for component in inputs:
            if component not in (ENCODER, DECODER):
                raise ConfigError(
                    f"model.bundle.{component} is no component: a bundle has encoder and decoder"
                )
            if component not in words:
                raise ConfigError(f"[task.{component}] is missing: say what the {component} is fed")
            _check_inputs(component, words[component], inputs[component])
            for name, word in words[component].items():
                _check_word(f"task.{component}.{name}", component, word, outputs)
        if self.logits not in outputs[DECODER]:
            suggestion = nearest(self.logits, list(outputs[DECODER]))
            raise ConfigError(
                f"task.decoder.output.logits = {self.logits!r} is no output of the decoder"
                f"{suggestion}: it has {', '.join(outputs[DECODER])}"
            )


def _check_inputs(component: str, words: Mapping[str, str], names: tuple[str, ...]) -> None:
    for name in words:
        if name not in names:
            raise ConfigError(
                f"task.{component}.{name} is no input of the {component}"
                f"{nearest(name, list(names))}: it has {', '.join(names)}"
            )
    for name in names:
        if name not in words:
            raise ConfigError(
                f"task.{component}.{name} is missing: say what this input is fed, one of "
                + _known(component)
            )


def _check_word(dotted: str, component: str, word: str, outputs: Names) -> None:
    link, _, name = word.partition(":")
    if word in WORDS[component]:
        return
    if component == ENCODER or link not in (FROM_ENCODER, CARRIED):
        suggestion = nearest(word, WORDS[component])
        raise ConfigError(f"{dotted} = {word!r} is none of {_known(component)}{suggestion}")
    available = outputs.get(ENCODER if link == FROM_ENCODER else DECODER, ())
    if name not in available:
        raise ConfigError(
            f"{dotted} = {word!r}: there is no such output{nearest(name, list(available))} "
            f"(there is {', '.join(available) or 'none'})"
        )


def _known(component: str) -> str:
    links = (f"{FROM_ENCODER}:OUTPUT", f"{CARRIED}:OUTPUT") if component == DECODER else ()
    return ", ".join((*WORDS[component], *links))
