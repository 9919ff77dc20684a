"""The real servers that the cases share: one of each kind, loaded when first asked for."""

from collections.abc import Iterator

import pytest

from tests.cases.real import RealServer, serving, tiny_model


def _served(kind: str, factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tiny_model(factory.mktemp("models"), kind)) as server:
        yield server


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """ChatML, without tools or thinking; a context of 512 tokens."""
    yield from _served("plain", tmp_path_factory)


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The same with a context that has room for tools, which its template has no place for."""
    yield from _served("words", tmp_path_factory)


@pytest.fixture(scope="session")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Qwen 2.5's template: tools."""
    yield from _served("calls", tmp_path_factory)


@pytest.fixture(scope="session")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Qwen 3's template: tools, and thinking that the answer opens."""
    yield from _served("thinks", tmp_path_factory)


@pytest.fixture(scope="session")
def opens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """QwQ's template: tools, and thinking that the prompt opens where it is asked for."""
    yield from _served("opens", tmp_path_factory)


@pytest.fixture(scope="session")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """SentencePiece with byte tokens, ChatML without ChatML's control tokens."""
    yield from _served("pieces", tmp_path_factory)
