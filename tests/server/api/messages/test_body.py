"""The parameter tables of the Messages API agree with its bodies."""

from server.api.messages.body import COUNT_PARAMETERS, MESSAGES_PARAMETERS, MessagesBody, PromptBody
from server.fields.parameters import Handling


def test_what_the_tables_call_honoured_is_what_the_bodies_hold() -> None:
    for table, body in ((MESSAGES_PARAMETERS, MessagesBody), (COUNT_PARAMETERS, PromptBody)):
        honoured = {row.name for row in table.values() if row.handling is Handling.HONOURED and "." not in row.name}
        assert honoured == set(body.model_fields)
