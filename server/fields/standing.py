"""The fields that say how a request stands to the others, of every body that asks for text."""

from typing import Annotated

from pydantic import Field

from server.fields.common import WHOLE, ProtocolModel

Priority = Annotated[int, Field(ge=-1000, le=1000), WHOLE]
CacheSalt = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")]  # as vLLM has it


class Standing(ProtocolModel):
    """How a request stands to the others: when its turn is, and what it shares with them."""

    priority: Priority = 0  # the lower is served earlier
    cache_salt: CacheSalt | None = None  # only requests of the same salt share the prefix cache
    cache_prompt: bool = True  # else the prompt is computed, and no other request gets any of it

    @property
    def said(self) -> dict[str, object]:
        """These fields as far as they were sent."""
        return self.model_dump(include=set(Standing.model_fields), exclude_unset=True)
