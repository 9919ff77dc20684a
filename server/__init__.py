"""The HTTP face and the command line."""

from pydantic import BaseModel

# Building the validators of every type, FastAPI's for its own OpenAPI document too, is a third of all importing. They
# are built at their first use instead; cli/run_server.py has those of requests built once the model is ready.
BaseModel.model_config["defer_build"] = True
