// A program of a user of Anthropic's client for Node.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { feature } from "./features.mjs";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const common = { model: "claude-sonnet-4-5", temperature: 0, max_tokens: 40 };
const messages = [{ role: "user", content: "Say hello." }];
const rome = [{ role: "user", content: "How is the weather in Rome and in Oslo?" }];
const input_schema = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"] };
const tools = [{ name: "weather", description: "Return the weather of a city.", input_schema }];
const results = (message) => message.content.filter((block) => block.type === "tool_use").map((block) => (
  { type: "tool_result", tool_use_id: block.id, content: "clear" }));

await feature("chat", "", async () => (await client.messages.create({ ...common, messages })).content[0].text);
await feature("messages", "countTokens, models", async () => {
  const { data } = await client.models.list();
  return data.length && (await client.messages.countTokens({ model: "default", messages })).input_tokens;
});
await feature("stream", "", async () => {
  const stream = client.messages.stream({ ...common, messages });
  let text = "";
  stream.on("text", (piece) => { text += piece; });
  return (await stream.finalMessage()).content[0].text === text && text;
});
await feature("multi-turn", "", async () => {
  const first = await client.messages.create({ ...common, messages });
  const more = [...messages, { role: "assistant", content: first.content }, { role: "user", content: "Again." }];
  return (await client.messages.create({ ...common, messages: more })).content.length;
});
await feature("tools", "streamed, results sent back", async () => {
  const stream = client.messages.stream({ ...common, messages: rome, tools, tool_choice: { type: "tool", name: "weather" } });
  const first = await stream.finalMessage();
  const more = [...rome, { role: "assistant", content: first.content }, { role: "user", content: results(first) }];
  return (await client.messages.create({ ...common, messages: more, tools, tool_choice: { type: "none" } })).content.length;
});
await feature("tools", "toolRunner", async () => {
  const weather = betaZodTool({
    name: "weather", description: "Return the weather of a city.", inputSchema: z.object({ city: z.enum(["Oslo", "Rome"]) }),
    run: () => "clear",
  });
  return (await client.beta.messages.toolRunner({ ...common, messages: rome, tools: [weather] })).stop_reason;
});
await feature("parallel tools", "", async () => {
  const asked = { ...common, max_tokens: 100, messages: rome, tools, tool_choice: { type: "any" } };
  const many = await client.messages.create(asked);
  const one = await client.messages.create({ ...asked, tool_choice: { type: "any", disable_parallel_tool_use: true } });
  return results(many).length > 1 && results(one).length === 1;
});
await feature("structured output", "", async () => {
  const format = zodOutputFormat(z.object({ sky: z.enum(["clear", "cloudy"]) }));
  return (await client.messages.parse({ ...common, messages, output_config: { format } })).parsed_output.sky;
});
await feature("usage", "", async () => (await client.messages.create({ ...common, messages })).usage.output_tokens);
await feature("errors", "", async () => {
  const error = await client.messages.create({ ...common, messages, temperature: -1 }).catch((failure) => failure);
  return error instanceof Anthropic.BadRequestError && error.requestID && error.error.request_id === error.requestID;
});
