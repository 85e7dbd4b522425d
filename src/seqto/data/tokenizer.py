"""Texts → token numbers, by a `tokenizer.json` or by vocabulary files (extra `text`).

The library `tokenizers` does the work. A file's own padding is switched off: padding is for
batches, which are made later. A text with more than `max_length` tokens is cut as the file says,
special tokens kept, and `Encoded.dropped` tells by how much.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError, DataError, nearest
from seqto.files import open_regular, read_path
from seqto.records import Json
from seqto.text import shorten

IDS, MASK, PADDING, TYPES = "ids", "mask", "padding", "types"
ZEROS, ONES, POSITIONS, EMPTY = "zeros", "ones", "positions", "empty"
CONTENTS = (IDS, MASK, PADDING, TYPES, ZEROS, ONES, POSITIONS, EMPTY)

LARGEST_FILE_BYTES = 1 << 28
LARGEST_TOKEN = 2**31 - 1  # inputs may be int32
KIND_NAMES = {str: "a text", int: "a whole number", bool: "true or false", Mapping: "a table"}


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """The table [data.tokenizer].

    file        tokenizer.json of the library `tokenizers`
    vocab       or a vocabulary: vocab.txt (WordPiece, one token a line) or, with `merges`,
                vocab.json (byte-level BPE)
    max_length  tokens, special ones among them, beyond which a text is cut; absent: the file's own
                limit, if it has one
    pad         number of the token that fills up shorter texts of a batch
    special     whether special tokens are added, as the file says
    inputs      model input → what goes in: ids, mask (1 for a token, 0 for padding), padding (true
                where padded), types (which of two texts), positions, zeros, ones, empty (a
                decoder's cache before the first token)
    """

    file: str | None = None
    vocab: str | None = None
    merges: str | None = None
    lowercase: bool = True
    max_length: int | None = None
    pad: int | None = None
    special: bool = True
    inputs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.file is None) == (self.vocab is None):
            raise ConfigError(
                "data.tokenizer needs either file (a tokenizer.json) or vocab (a vocabulary file)"
            )
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(f"data.tokenizer.max_length = {self.max_length} must be at least 1")
        if self.pad is not None and not 0 <= self.pad <= LARGEST_TOKEN:
            raise ConfigError(
                f"data.tokenizer.pad = {shorten(self.pad, 40)} is no number of a token, from 0 to "
                f"{LARGEST_TOKEN}"
            )
        for name, content in self.inputs.items():
            if content not in CONTENTS:
                raise ConfigError(
                    f"data.tokenizer.inputs.{name} = {content!r} is none of "
                    f"{', '.join(CONTENTS)}{nearest(str(content), CONTENTS)}"
                )

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> TokenizerSettings:
        kinds: Mapping[str, tuple[type, ...]] = {
            **dict.fromkeys(("file", "vocab", "merges"), (str,)),
            **dict.fromkeys(("max_length", "pad"), (int,)),
            **dict.fromkeys(("lowercase", "special"), (bool,)),
            "inputs": (Mapping,),
        }
        for key, value in table.items():
            if key not in kinds:
                suggestion = nearest(key, list(kinds))
                raise ConfigError(f"unknown setting 'data.tokenizer.{key}'{suggestion}")
            wrong = isinstance(value, bool) and bool not in kinds[key]
            if value is not None and (wrong or not isinstance(value, kinds[key])):
                name = KIND_NAMES[kinds[key][0]]
                raise ConfigError(
                    f"data.tokenizer.{key} = {shorten(repr(value), 120)} is not {name}"
                )
        values: dict[str, Any] = dict(table)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The tokens of one text, or of two texts in one sequence."""

    ids: NDArray[np.int64]
    types: NDArray[np.int64]  # 0 for tokens of the first text, 1 for those of the second
    dropped: int = 0  # tokens that did not fit into max_length

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Encodes and decodes texts."""

    library: Any  # tokenizers.Tokenizer, which neither cuts nor pads
    limited: Any | None  # the same with truncation to max_length; None: no limit
    max_length: int | None
    special: bool
    digest: str
    name: str

    def encode(self, text: str, second: str | None = None) -> Encoded:
        """Return the tokens of a text, or of two in one sequence."""
        whole = self._run(self.library, text, second)
        if self.max_length is None or len(whole.ids) <= self.max_length:
            return _encoded(whole, 0)
        cut = self._run(self.limited, text, second)
        return _encoded(cut, len(whole.ids) - len(cut.ids))

    def _run(self, library: Any, text: str, second: str | None) -> Any:
        with _library_errors("the tokenizer fails"):
            return library.encode(text, second, add_special_tokens=self.special)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Return the text of some tokens; `special`: with the special ones."""
        return str(self.library.decode([int(i) for i in ids], skip_special_tokens=not special))

    def token(self, number: int) -> str | None:
        """Return the token of a number, None where there is none."""
        token = self.library.id_to_token(int(number))
        return None if token is None else str(token)

    def number(self, token: str) -> int | None:
        """Return the number of a token, None where the vocabulary lacks it."""
        number = self.library.token_to_id(token)
        return None if number is None else int(number)

    @property
    def size(self) -> int:
        """Tokens in the vocabulary, added ones among them."""
        return int(self.library.get_vocab_size(with_added_tokens=True))

    def identity(self) -> Json:
        return {
            "file": self.name,
            "digest": self.digest,
            "max_length": self.max_length,
            "special": self.special,
        }


def _encoded(encoding: Any, dropped: int) -> Encoded:
    ids, types = (np.array(x, dtype=np.int64) for x in (encoding.ids, encoding.type_ids))
    return Encoded(ids, types, dropped)


def open_tokenizer(settings: TokenizerSettings) -> Tokenizer:
    """Open the tokenizer of a table [data.tokenizer]."""
    content, name, digest = _content(settings)
    truncation = json.loads(content).get("truncation") or {}
    if not isinstance(truncation, dict):
        raise DataError(f"{name} is no tokenizer that can be used: its truncation is no table")
    max_length = settings.max_length or truncation.get("max_length")
    library = _from_json(content, name)
    library.no_padding()
    library.no_truncation()
    limited = None
    if max_length is not None:
        limited = _from_json(content, name)
        limited.no_padding()
        # a file says where it cuts; without, the end of the longer text is cut
        with _library_errors(f"max_length {max_length} of {name} cannot be used"):
            limited.enable_truncation(
                int(max_length),
                stride=0,
                strategy=_snake(truncation.get("strategy", "LongestFirst")),
                direction=str(truncation.get("direction", "Right")).lower(),
            )
    return Tokenizer(library, limited, max_length, settings.special, digest, name)


def _snake(name: str) -> str:
    """Return longest_first of LongestFirst: the file and the library spell it differently."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _content(settings: TokenizerSettings) -> tuple[str, str, str]:
    """Return the tokenizer as JSON, the name of its file and a digest of the files."""
    if settings.file is not None:
        text = _read(settings.file)
        try:
            table = json.loads(text)
            if not isinstance(table, dict) or not isinstance(table.get("model"), dict):
                raise ValueError("it has no model")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{settings.file!r} is no tokenizer.json: {error}; give a vocabulary as "
                "data.tokenizer.vocab"
            ) from error
        return text, Path(settings.file).name, hashlib.sha256(text.encode()).hexdigest()
    vocab = _read(str(settings.vocab))
    merges = None if settings.merges is None else _read(settings.merges)
    content = _bpe(vocab, merges, settings) if merges is not None else _word_piece(vocab, settings)
    return content, Path(str(settings.vocab)).name, hashlib.sha256(content.encode()).hexdigest()


def _read(path: str) -> str:
    try:
        with open_regular(read_path(path, "data.tokenizer")) as stream:
            content = stream.read(LARGEST_FILE_BYTES + 1)
        if len(content) > LARGEST_FILE_BYTES:
            raise DataError(f"the tokenizer file {path!r} is larger than 256 MB")
        return content.decode("utf-8")
    except FileNotFoundError as error:
        raise DataError(f"the tokenizer file {path!r} does not exist") from error
    except OSError as error:
        raise DataError(f"cannot read the tokenizer file {path!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"the tokenizer file {path!r} is not UTF-8: {error.reason}") from error


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ConfigError("texts need the library tokenizers: pip install 'seqto[text]'") from error
    return tokenizers


@contextlib.contextmanager
def _library_errors(said: str) -> Iterator[None]:
    """Make what the library raises a DataError: plain Exceptions, and panics of its Rust code."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception, and its class cannot be imported
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"{said}: {error}") from error


def _from_json(content: str, name: str) -> Any:
    library = _library()
    with _library_errors(f"{name} is no tokenizer that can be used"):
        return library.Tokenizer.from_str(content)


def _word_piece(vocab: str, settings: TokenizerSettings) -> str:
    """Return a BERT tokenizer from vocab.txt, one token a line."""
    library = _library()
    tokens = {line: number for number, line in enumerate(vocab.splitlines()) if line}
    missing = [t for t in ("[UNK]", "[CLS]", "[SEP]") if t not in tokens]
    if missing:
        raise DataError(
            f"{settings.vocab!r} has no token {missing[0]}: a WordPiece vocabulary has one token "
            "a line; for byte-level BPE give data.tokenizer.merges too"
        )
    tokenizer = library.Tokenizer(library.models.WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=settings.lowercase)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(t, tokens[t]) for t in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = library.decoders.WordPiece()
    tokenizer.add_special_tokens(
        [t for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if t in tokens]
    )
    return str(tokenizer.to_str())


def _bpe(vocab: str, merges: str, settings: TokenizerSettings) -> str:
    """Return a byte-level BPE tokenizer from vocab.json and merges.txt, as GPT-2 has them."""
    library = _library()
    try:
        tokens = {str(k): int(v) for k, v in json.loads(vocab).items()}
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{settings.vocab!r} is no vocab.json of token and number") from error
    pairs = [line.split(" ") for line in merges.splitlines() if line and not line.startswith("#v")]
    if any(len(pair) != 2 for pair in pairs):
        raise DataError(f"{settings.merges!r} is no merges.txt: two tokens a line are needed")
    with _library_errors(f"{settings.vocab!r} and {settings.merges!r} do not fit"):
        model = library.models.BPE(tokens, [(a, b) for a, b in pairs])
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    return str(tokenizer.to_str())
