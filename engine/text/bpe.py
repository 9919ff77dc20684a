"""BPE by the library `tokenizers`: text -> normalized text -> words -> symbols -> merges by rank.

The symbols are UTF-8 bytes written as letters, as GPT-2 began it, or characters with bytes to fall back to.
"""

from collections.abc import Mapping
from functools import cache

from tokenizers import AddedToken, Tokenizer, models
from tokenizers.pre_tokenizers import PreTokenizer

from engine.errors import ModelFileError
from engine.text.pretokenizers import pre_tokenizer
from engine.text.sentencepiece import byte_ids, written_bytes
from engine.text.tokenizer_rules import TokenFlags, TokenizerRules
from engine.text.vocabulary import TokenType, Vocabulary


@cache
def letter_bytes() -> dict[str, int]:
    """The letter that stands for each byte -> the byte: printable Latin-1 is itself, the rest are U+0100 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class ByteLevelBpe:
    """Encodes plain text: control tokens have no place in its vocabulary, so no text can give one."""

    def __init__(self, vocabulary: Vocabulary, user_tokens: Mapping[str, TokenFlags]) -> None:
        """`user_tokens` are those that are looked for in the normalized text."""
        pre = pre_tokenizer(vocabulary.pre)
        self.adds_bos = pre.adds_bos
        rules = vocabulary.rules or TokenizerRules()
        self._plain = _Library(_model(vocabulary, ignore_merges=pre.ignores_merges), rules, pre.build(), {})
        self._whole = self._plain.with_tokens(user_tokens) if user_tokens else self._plain

    def encode(self, text: str, *, at_start: bool = True, quoted: bool = False) -> list[int]:
        """Ids of a run of plain text; a quoted one holds no added tokens."""
        return (self._plain if quoted else self._whole).encode(text)

    def piece_bytes(self, piece: str) -> bytes:
        letters = letter_bytes()
        try:
            return bytes([letters[letter] for letter in piece])
        except KeyError:  # not byte-level: a token that was added as it is
            return piece.encode()


class ByteFallbackBpe:
    """Encodes plain text by a folder's own rules and merges; spaces are U+2581 there, and bytes are `<0x0A>`."""

    adds_bos = True

    def __init__(self, vocabulary: Vocabulary, rules: TokenizerRules, user_tokens: Mapping[str, TokenFlags]) -> None:
        byte_ids(vocabulary)  # all are there
        model = _model(vocabulary, byte_fallback=True, ignore_merges=rules.ignores_merges)
        self._encoders = {}
        for at_start in (True, False):
            plain = _Library(model, rules, rules.build_pre_tokenizer(at_start=at_start), {})
            self._encoders[at_start, True] = plain
            self._encoders[at_start, False] = plain.with_tokens(user_tokens) if user_tokens else plain

    def encode(self, text: str, *, at_start: bool = True, quoted: bool = False) -> list[int]:
        """Ids of a run of plain text, at the start of a whole text or not; a quoted one holds no added tokens."""
        return self._encoders[at_start, quoted].encode(text)

    def piece_bytes(self, piece: str) -> bytes:
        return written_bytes(piece)


class _Library:
    """The library's tokenizer around one model."""

    def __init__(
        self,
        model: models.BPE,
        rules: TokenizerRules,
        pre: PreTokenizer | None,
        user_tokens: Mapping[str, TokenFlags],
    ) -> None:
        self._parts = model, rules, pre
        self._tokenizer = Tokenizer(model)
        normalizer = rules.build_normalizer()
        if normalizer is not None:
            self._tokenizer.normalizer = normalizer
        if pre is not None:
            self._tokenizer.pre_tokenizer = pre
        self._tokenizer.add_tokens(
            [
                AddedToken(
                    text, lstrip=flags.lstrip, rstrip=flags.rstrip, single_word=flags.single_word, normalized=True
                )
                for text, flags in user_tokens.items()
            ]
        )

    def with_tokens(self, user_tokens: Mapping[str, TokenFlags]) -> "_Library":
        """The same, with these tokens looked for in the normalized text."""
        return _Library(*self._parts, user_tokens)

    def encode(self, text: str) -> list[int]:
        # A batch of one: unlike `encode`, it lets other threads of Python run meanwhile.
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _model(vocabulary: Vocabulary, **options: bool) -> models.BPE:
    """The library's model of all tokens that plain text may give."""
    plain = dict(vocabulary.ids)
    made_up = () if vocabulary.rules is None else (TokenType.UNUSED,)
    hidden = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN, *made_up)
    for text in hidden:
        del plain[text]
    try:
        return models.BPE(plain, _pairs(vocabulary, hidden), **options)
    except Exception as error:  # the library raises bare Exceptions
        told = " ".join(str(error).split())
        raise ModelFileError(
            f"The model file's merges do not fit its tokens ({told}); download the file again or use another one."
        ) from error


def _pairs(vocabulary: Vocabulary, hidden: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges, without those that would give a hidden token or, of a token that lost its text, cannot be made."""
    split = [
        (left, right) for left, space, right in (merge.partition(" ") for merge in vocabulary.merges) if left and right
    ]
    if len(split) != len(vocabulary.merges):
        raise ModelFileError(
            "The model file's tokenizer.ggml.merges holds an entry that is not two parts;"
            " download the file again or use another one."
        )
    pairs = [(left, right) for left, right in split if not {left, right, left + right} & hidden.keys()]
    if not vocabulary.duplicates:
        return pairs
    return [(left, right) for left, right in pairs if {left, right, left + right} <= vocabulary.ids.keys()]
