// A program of a user of OpenAI's client for Node.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { feature } from "./features.mjs";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];
const common = { model: "default", temperature: 0, max_tokens: 40 };
const rome = [{ role: "user", content: "How is the weather in Rome and in Oslo?" }];
const Weather = z.object({ sky: z.enum(["clear", "cloudy"]) });
const weather = { name: "weather", parameters: z.object({ city: z.enum(["Oslo", "Rome"]) }) };
const tools = [zodFunction(weather)];
const chat = client.chat.completions;

await feature("chat", "", async () => (await chat.create({ ...common, messages })).choices[0].message.content);
await feature("stream", "", async () => {
  let text = "";
  for await (const chunk of await chat.create({ ...common, messages, stream: true })) text += chunk.choices[0].delta.content ?? "";
  return text === (await chat.create({ ...common, messages })).choices[0].message.content;
});
await feature("stream", "abort", async () => {
  const stream = await chat.create({ ...common, max_tokens: 400, messages, stream: true });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 3) stream.controller.abort();
  return chunks <= 4;
});
await feature("multi-turn", "", async () => {
  const first = (await chat.create({ ...common, messages })).choices[0].message;
  const more = [...messages, first, { role: "user", content: "Again." }];
  return (await chat.create({ ...common, messages: more })).choices[0].message.content;
});
await feature("tools", "", async () => {
  const { choices: [{ message }] } = await chat.create({ ...common, messages: rome, tools, tool_choice: "required" });
  const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "clear" }));
  return (await chat.create({ ...common, messages: [...rome, message, ...results], tools, tool_choice: "none" })).choices[0].message.content;
});
await feature("tools", "runTools", async () => {
  const asked = [];
  const runner = chat.runTools({
    ...common, max_tokens: 100, messages: rome, tool_choice: { type: "function", function: { name: "weather" } },
    tools: [zodFunction({ ...weather, function: ({ city }) => { asked.push(city); return "clear"; } })],
  });
  await runner.done();
  return asked.length;
});
await feature("parallel tools", "", async () => {
  const stream = chat.stream({ ...common, max_tokens: 100, messages: rome, tools, tool_choice: "required", min_tokens: 30 });
  const { choices: [{ message }] } = await stream.finalChatCompletion();
  const alone = await chat.create({ ...common, messages: rome, tools, tool_choice: "required", parallel_tool_calls: false });
  return message.tool_calls.length > 1 && alone.choices[0].message.tool_calls.length === 1;
});
const format = { response_format: zodResponseFormat(Weather, "weather") };
await feature("structured output", "", async () =>
  (await chat.parse({ ...common, ...format, messages: [{ role: "user", content: "The sky is blue." }] })).choices[0].message.parsed.sky);
await feature("tools + structured output", "", async () => {
  const { choices: [{ message }] } = await chat.parse({ ...common, ...format, max_tokens: 200, messages: rome, tools });
  return message.parsed?.sky ?? message.tool_calls.length;
});
await feature("logprobs", "", async () => {
  const answer = await chat.create({ ...common, messages, logprobs: true, top_logprobs: 3 });
  return answer.choices[0].logprobs.content.every((each) => each.top_logprobs.length === 3);
});
await feature("usage", "", async () => {
  let usage;
  const stream = await chat.create({ ...common, messages, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) usage = chunk.usage ?? usage;
  return usage.total_tokens === (await chat.create({ ...common, messages })).usage.total_tokens;
});
await feature("errors", "", async () => {
  const error = await chat.create({ ...common, messages, temperature: -1 }).catch((failure) => failure);
  return error instanceof OpenAI.BadRequestError && error.param === "temperature";
});
await feature("embeddings", "", async () => {
  const answer = await client.embeddings.create({ model: "default", input: ["hello", "world"] });
  return answer.data[1].embedding.length > 10;
});
