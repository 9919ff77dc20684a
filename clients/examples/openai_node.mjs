// Ask the server with the OpenAI SDK for Node: one whole answer, then one streamed.
// Usage: node openai_node.mjs [URL] [MODEL]   (npm install openai)
import OpenAI from "openai";

const [url = "http://127.0.0.1:8080", model = "smollm2-135m"] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "not-needed" });
const question = {
  model,
  messages: [{ role: "user", content: "What is the capital of France?" }],
  temperature: 0,
  max_tokens: 64,
};

const answer = await client.chat.completions.create(question);
console.log(answer.choices[0].message.content);
console.log(answer.usage);

const stream = await client.chat.completions.create({
  ...question,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
process.stdout.write("\n");
