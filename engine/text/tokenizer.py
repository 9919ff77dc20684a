"""Text to token ids and back, for the tokenizers that GGUF files carry."""

from collections.abc import Mapping
from functools import lru_cache

from engine.text.bpe import ByteLevelBpe
from engine.text.rendered import RenderedChat
from engine.text.sentencepiece import SentencePiece
from engine.text.special_tokens import SpecialTokens
from engine.text.vocabulary import InfillIds, TokenType, Vocabulary

_SILENT = frozenset((TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED))
_SPACE_CHARACTERS = " \t\n\v\f\r"
_KEEPS_SPACE = frozenset(("<unk>", "<s>", "<|endoftext|>"))  # where the model else drops the space after special tokens
KNOWN_BYTES = 8192  # tokens whose bytes are kept: those of an answer are the same again and again


class Tokenizer:
    """One model's tokenizer. Control tokens come out of text only where the caller allows it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._model = ByteLevelBpe(vocabulary) if vocabulary.model == "gpt2" else SentencePiece(vocabulary)
        control = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)
        self.control_tokens = frozenset(text for text in control if len(text) > 1)  # one character cannot be guarded
        self.user_tokens = frozenset(map(self._as_written, vocabulary.of_type(TokenType.USER_DEFINED)))
        self._user_splitter = SpecialTokens(self.user_tokens)
        self._splitter = SpecialTokens(self.user_tokens | self.control_tokens)
        user = vocabulary.of_type(TokenType.USER_DEFINED).items()
        self._known_bytes = lru_cache(KNOWN_BYTES)(self._written_bytes)
        self._special_ids = control | {self._as_written(text): token for text, token in user}

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
        pieces = self._splitter.split(_sound(rendered.guarded))
        ids = self._encode_pieces([piece.replace(rendered.guard, "") for piece in pieces])
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

    def _as_written(self, user_token: str) -> str:
        return user_token.replace("\u2581", " ") if self._vocabulary.model == "llama" else user_token

    def _with_bos(self, ids: list[int]) -> list[int]:
        return ids if self.bos_id is None else [self.bos_id, *ids]

    def _encode_pieces(self, pieces: list[str]) -> list[int]:
        """Ids of plain runs (even places) and special tokens (odd places) in turn."""
        ids: list[int] = []
        for place, piece in enumerate(pieces):
            if place % 2:
                ids.append(self._special_ids[piece])
                continue
            if place and self._vocabulary.strips_after_special and pieces[place - 1] not in _KEEPS_SPACE:
                piece = piece.lstrip(_SPACE_CHARACTERS)
            if piece:
                ids += self._model.encode(" " + piece if self._vocabulary.add_space_prefix else piece)
        return ids


def _sound(text: str) -> str:
    """JSON can smuggle in lone surrogates, which are no characters: U+FFFD takes their place."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
