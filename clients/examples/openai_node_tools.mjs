// A conversation by way of the OpenAI SDK for Node: a streamed answer that calls tools, a streamed response, and an
// answer as data. Usage: node openai_node_tools.mjs [URL] [MODEL]   (npm install openai)
import OpenAI from "openai";

const [url = "http://127.0.0.1:8080", model = "smollm2-135m"] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "not-needed" });
const temperatures = { Paris: 14, Oslo: 9 };

const tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a town now.",
    parameters: { type: "object", properties: { town: { type: "string" } }, required: ["town"] },
    parse: JSON.parse,
    function: ({ town }) => `${temperatures[town]} degrees in ${town}`,
  },
};
const runner = client.chat.completions.runTools({
  model,
  messages: [{ role: "user", content: "What is the weather in Paris and in Oslo?" }],
  tools: [tool],
  stream: true,
});
console.log(await runner.finalContent());

const stream = await client.responses.create({ model, input: "Say hello to Zoë.", stream: true });
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}
process.stdout.write("\n");

const schema = {
  type: "object",
  properties: { name: { type: "string" }, country: { type: "string" }, inhabitants: { type: "integer" } },
  required: ["name", "country", "inhabitants"],
  additionalProperties: false,
};
const described = await client.chat.completions.parse({
  model,
  messages: [{ role: "user", content: "Describe Paris." }],
  response_format: { type: "json_schema", json_schema: { name: "town", strict: true, schema } },
});
console.log(JSON.parse(described.choices[0].message.content));
