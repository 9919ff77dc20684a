"""The parameter tables of the Responses API agree with its bodies."""

from server.api.responses.body import COUNT_PARAMETERS, RESPONSES_PARAMETERS, CountBody, ResponsesBody
from server.fields.parameters import Handling

IN_FORCE_ANYWAY = {"stream_options"}  # the usage that it may ask for is always told


def test_what_the_tables_call_honoured_is_what_the_bodies_hold() -> None:
    for table, body in ((RESPONSES_PARAMETERS, ResponsesBody), (COUNT_PARAMETERS, CountBody)):
        honoured = {row.name for row in table.values() if row.handling is Handling.HONOURED and "." not in row.name}
        assert honoured - IN_FORCE_ANYWAY == set(body.model_fields)
