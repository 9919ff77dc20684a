"""GET /docs and /openapi.json: the API described, without a word from another host.

The page renders the document with a script of its own, and its policy lets the page load nothing else.
"""

import base64
import hashlib

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from server.wire.json_text import json_answer

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; }
details { border: 1px solid #8886; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow: auto; max-height: 30rem; background: #8881; padding: .8rem; border-radius: 6px; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid #8884; padding: .25rem .8rem .25rem 0; vertical-align: top; }
.method { display: inline-block; min-width: 3.5rem; font-weight: 700; text-transform: uppercase; }
"""

SCRIPT = """
"use strict";
const make = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const nameOf = (schema) => (schema.$ref || "").split("/").pop();
const typeOf = (schema) => {
  if (schema.$ref) return nameOf(schema);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.anyOf || schema.oneOf) return (schema.anyOf || schema.oneOf).map(typeOf).join(" | ");
  if (schema.type === "array") return typeOf(schema.items || {}) + "[]";
  return schema.type || "any";
};
const boundsOf = (schema) => {
  const names = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "minItems",
    "maxItems", "pattern", "default"];
  const found = names.filter((name) => name in schema).map((name) => name + " " + JSON.stringify(schema[name]));
  return [schema.description, ...found].filter(Boolean).join(", ");
};
const fieldsOf = (schema) => {
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => {
    const needed = (schema.required || []).includes(name) ? " (required)" : "";
    return make("tr", "", make("td", "", make("code", name)), make("td", typeOf(field) + needed),
      make("td", boundsOf(field)));
  });
  return make("table", "", ...rows);
};
const contentOf = (content) => Object.entries(content || {}).map(([type, media]) => {
  const schema = media.schema || {};
  const what = make("p", type + ": " + typeOf(schema) + (schema.description ? " - " + schema.description : ""));
  if (!media.example) return what;
  return make("div", "", what, make("pre", JSON.stringify(media.example, null, 2)));
});
const operationOf = (method, path, operation) => {
  const heading = make("summary", "", make("span", method));
  heading.firstChild.className = "method";
  heading.append(make("code", path), " " + operation.summary);
  const box = make("details", "", heading);
  if (operation.requestBody) box.append(make("h4", "Body"), ...contentOf(operation.requestBody.content));
  for (const [status, answer] of Object.entries(operation.responses))
    box.append(make("h4", status + " " + answer.description), ...contentOf(answer.content));
  return box;
};
const show = (api) => {
  const page = document.getElementById("api");
  page.replaceChildren(make("h1", api.info.title + " " + api.info.version), make("p", api.info.description));
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods)) {
      const group = operation.tags[0];
      groups.set(group, [...(groups.get(group) || []), operationOf(method, path, operation)]);
    }
  for (const [group, boxes] of groups) page.append(make("h2", group), ...boxes);
  page.append(make("h2", "Types"));
  for (const [name, schema] of Object.entries(api.components.schemas))
    page.append(make("details", "", make("summary", "", make("code", name)), make("p", schema.description || ""),
      schema.properties ? fieldsOf(schema) : make("pre", JSON.stringify(schema, null, 2))));
};
fetch("openapi.json").then((answer) => answer.json()).then(show, (error) => {
  document.getElementById("api").textContent = "Cannot read openapi.json: " + error;
});
"""

PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Octavo API</title>
<style>{STYLE}</style>
</head>
<body>
<main id="api">This page needs JavaScript; the document itself is <a href="openapi.json">openapi.json</a>.</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _source(text: str) -> str:
    """What a policy calls an inline script or style by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_source(SCRIPT)}; style-src {_source(STYLE)}; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


async def read_docs(http: Request) -> Response:
    return Response(PAGE, headers=HEADERS, media_type="text/html")


async def read_openapi(http: Request) -> Response:
    return await run_in_threadpool(lambda: json_answer(http.app.state.document()))
