"""Text to token ids and back, for the tokenizers that GGUF files carry.

A chat comes as its template wrote the chat, with marks that tell the template's own control tokens from quoted ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from engine.errors import UnsupportedModelError
from engine.text.added_tokens import AddedTokens
from engine.text.bpe import ByteFallbackBpe, ByteLevelBpe
from engine.text.sentencepiece import SentencePiece
from engine.text.tokenizer_rules import TokenFlags, TokenizerRules
from engine.text.vocabulary import InfillIds, TokenType, Vocabulary


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """Special tokens inside the messages hold a guard character, which occurs nowhere else; the scaffold's do not."""

    guarded: str
    guard: str

    @property
    def text(self) -> str:
        """The chat as people read it, without guards."""
        return self.guarded.replace(self.guard, "")


_SILENT = frozenset((TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED))
_SPACE_CHARACTERS = " \t\n\v\f\r"
_KEEPS_SPACE = frozenset(("<unk>", "<s>", "<|endoftext|>"))  # where the model else drops the space after special tokens
KNOWN_BYTES = 8192  # tokens whose bytes are kept: those of an answer are the same again and again


class Tokenizer:
    """One model's tokenizer. Control tokens come out of text only where the caller allows it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises ModelFileError or UnsupportedModelError."""
        self._vocabulary = vocabulary
        control = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)
        user = {self._as_matched(text): token for text, token in vocabulary.of_type(TokenType.USER_DEFINED).items()}
        self.control_tokens = frozenset(text for text in control if len(text) > 1)  # one character cannot be guarded
        self.user_tokens = frozenset(user)
        self._special_ids = user | control
        written = {text: self._flags(text) for text in self.user_tokens}
        normalized: dict[str, TokenFlags] = {}
        if _normalizes(vocabulary.rules):
            normalized = {text: flags for text, flags in written.items() if flags.normalized}
        self._user_splitter = AddedTokens({text: written[text] for text in written.keys() - normalized})
        self._splitter = AddedTokens(
            {text: written[text] for text in written.keys() - normalized}
            | {text: self._flags(text) for text in self.control_tokens}
        )
        self._model = _model(vocabulary, normalized)
        self._check_control_tokens()
        self._known_bytes = lru_cache(KNOWN_BYTES)(self._written_bytes)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> "Tokenizer":
        """Build from a GGUF file's key/values. Raises ModelFileError or UnsupportedModelError."""
        return cls(Vocabulary.from_metadata(metadata))

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        """The token that templates write as eos_token; see end_ids for what ends an answer."""
        return self._vocabulary.eos_id

    @property
    def add_bos(self) -> bool:
        """Does the model expect its BOS token before every prompt?"""
        wanted = self._model.adds_bos if self._vocabulary.add_bos is None else self._vocabulary.add_bos
        return wanted and self.bos_id is not None

    @property
    def end_ids(self) -> frozenset[int]:
        """All ids that end a turn."""
        return self._vocabulary.end_ids

    @property
    def infill_ids(self) -> InfillIds | None:
        """The tokens around the two texts of an infilling prompt; None where the model has none."""
        return self._vocabulary.infill_ids

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids of a text; with parse_special, control tokens written in it are those tokens."""
        ids = self._encode_pieces((self._splitter if parse_special else self._user_splitter).split(_sound(text)))
        return self._with_bos(ids) if add_bos else ids

    def encode_prompt(self, text: str) -> list[int]:
        """A raw completion prompt, after BOS where the model wants it; whoever writes it writes the scaffold too."""
        return self.encode(text, add_bos=self.add_bos, parse_special=True)

    def encode_document(self, text: str) -> list[int]:
        """A whole text to embed: like a prompt, and with EOS after it where the model wants that."""
        ids = self.encode_prompt(text)
        return [*ids, self.eos_id] if self._vocabulary.add_eos and self.eos_id is not None else ids

    def encode_rendered(self, rendered: RenderedChat) -> list[int]:
        """A chat: the scaffold's special tokens are tokens, those inside messages are plain text; one BOS at most."""
        ids = self._encode_pieces(self._splitter.split(_sound(rendered.guarded), rendered.guard), rendered.guard)
        return self._with_bos(ids) if self.add_bos and ids[:1] != [self.bos_id] else ids

    def token_bytes(self, token: int) -> bytes:
        """What the token writes: raw bytes, which need not be whole characters; nothing for control tokens."""
        return self._known_bytes(token)

    def _written_bytes(self, token: int) -> bytes:
        kind, piece = self._vocabulary.types[token], self._vocabulary.tokens[token]
        if kind in _SILENT:
            return b""
        if kind == TokenType.USER_DEFINED:
            return self._as_written(piece).encode()
        return self._model.piece_bytes(piece)

    def token_text(self, token: int) -> str:
        """The token's name in the vocabulary, control tokens too."""
        return self._vocabulary.tokens[token]

    def ids_alike(self, token: int) -> list[int]:
        """The ids of all tokens that have this one's text: this one alone, in most vocabularies."""
        return self._vocabulary.duplicates.get(self._vocabulary.tokens[token], [token])

    def _as_matched(self, user_token: str) -> str:
        """GGUF files name user-defined tokens as SentencePiece writes them, folders as they stand in texts."""
        return self._as_written(user_token) if self._vocabulary.rules is None else user_token

    def _as_written(self, user_token: str) -> str:
        return user_token.replace("\u2581", " ") if self._vocabulary.model == "llama" else user_token

    def _with_bos(self, ids: list[int]) -> list[int]:
        return ids if self.bos_id is None else [self.bos_id, *ids]

    def _encode_pieces(self, pieces: list[str], guard: str = "") -> list[int]:
        """Ids of plain runs (even places) and special tokens (odd places) in turn; runs with guards are quoted."""
        ids: list[int] = []
        for place, piece in enumerate(pieces):
            if place % 2:
                ids.append(self._special_ids[piece])
                continue
            quoted = guard != "" and guard in piece
            if quoted:
                piece = piece.replace(guard, "")
            if place and self._vocabulary.strips_after_special and pieces[place - 1] not in _KEEPS_SPACE:
                piece = piece.lstrip(_SPACE_CHARACTERS)
            if piece:
                text = " " + piece if self._vocabulary.add_space_prefix else piece
                ids += self._model.encode(text, at_start=place == 0, quoted=quoted)
        return ids

    def _flags(self, text: str) -> TokenFlags:
        rules = self._vocabulary.rules
        return TokenFlags() if rules is None else rules.flags.get(self._special_ids[text], TokenFlags())

    def _check_control_tokens(self) -> None:
        """Control tokens are looked for in the text as written, so a normalizer must leave their names alone."""
        normalizer = None if self._vocabulary.rules is None else self._vocabulary.rules.build_normalizer()
        if normalizer is None:
            return
        for text in sorted(self.control_tokens):
            if self._flags(text).normalized and normalizer.normalize_str(text) != text:
                raise UnsupportedModelError(
                    f"The model's tokenizer looks for its special token {text!r} in normalized text, where the token is"
                    " written differently, which this version cannot do; use another file of the model."
                )


def _normalizes(rules: TokenizerRules | None) -> bool:
    return rules is not None and rules.normalizer is not None


def _model(
    vocabulary: Vocabulary, normalized: Mapping[str, TokenFlags]
) -> ByteLevelBpe | ByteFallbackBpe | SentencePiece:
    if vocabulary.model == "gpt2":
        return ByteLevelBpe(vocabulary, normalized)
    if vocabulary.rules is not None:
        return ByteFallbackBpe(vocabulary, vocabulary.rules, normalized)
    return SentencePiece(vocabulary)


def _sound(text: str) -> str:
    """JSON can smuggle in lone surrogates, which are no characters: U+FFFD takes their place."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
