"""Byte-level BPE, as GPT-2 began it: text -> words -> UTF-8 bytes written as letters -> merges by rank."""

from functools import cache

from tokenizers import Tokenizer, models

from engine.errors import ModelFileError
from engine.text.pretokenizers import pre_tokenizer
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

    def __init__(self, vocabulary: Vocabulary) -> None:
        pre = pre_tokenizer(vocabulary.pre)
        self.adds_bos = pre.adds_bos
        plain = dict(vocabulary.ids)
        for text in vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN):
            del plain[text]
        try:
            model = models.BPE(plain, _pairs(vocabulary.merges), ignore_merges=pre.ignores_merges)
        except Exception as error:  # the library raises bare Exceptions
            raise ModelFileError(
                f"The model file's merges do not fit its tokens ({error}); download the file again or use another one."
            ) from error
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre.build()

    def encode(self, text: str) -> list[int]:
        # A batch of one: unlike `encode`, it lets other threads of Python run meanwhile.
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def piece_bytes(self, piece: str) -> bytes:
        letters = letter_bytes()
        try:
            return bytes([letters[letter] for letter in piece])
        except KeyError:  # not byte-level: a token that was added as it is
            return piece.encode()


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    pairs = [(left, right) for left, space, right in (merge.partition(" ") for merge in merges) if left and right]
    if len(pairs) != len(merges):
        raise ModelFileError(
            "The model file's tokenizer.ggml.merges holds an entry that is not two parts;"
            " download the file again or use another one."
        )
    return pairs
