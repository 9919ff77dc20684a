"""The OpenAI Responses API over the chat core."""
