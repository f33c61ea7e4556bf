// A program of a user of the Vercel AI SDK, with `.chat` of OpenAI's provider, the compatible provider and Anthropic's.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embedMany, generateText, Output, streamText, tool } from "ai";
import { z } from "zod";
import { feature } from "./features.mjs";

const url = process.argv[2];
const compatible = createOpenAICompatible({
  name: "ours", baseURL: `${url}/v1`, supportsStructuredOutputs: true, includeUsage: true,
});
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" });
const short = { temperature: 0, maxOutputTokens: 200, maxRetries: 0 };
const common = { ...short, model: compatible("default") };
const weather = tool({
  description: "Return the weather of a city.", inputSchema: z.object({ city: z.enum(["Oslo", "Rome"]) }), execute: async () => "clear",
});
const rome = "How is the weather in Rome and in Oslo?";
const output = Output.object({ schema: z.object({ sky: z.enum(["clear", "cloudy"]) }) });
const oneCall = { providerOptions: { ours: { parallel_tool_calls: false }, openai: { parallelToolCalls: false } } };
const named = { tools: { weather }, toolChoice: "required" };

for (const [name, model] of Object.entries({ compatible: common.model, "openai.chat": openai.chat("default") })) {
  await feature("chat", name, async () => (await generateText({ ...short, model, prompt: "Say hello." })).text);
  await feature("stream", name, async () => {
    let text = "";
    for await (const piece of streamText({ ...short, model, prompt: "Say hello." }).textStream) text += piece;
    return text === (await generateText({ ...short, model, prompt: "Say hello." })).text;
  });
  await feature("tools", name, async () => {
    const called = await generateText({ ...short, ...named, ...oneCall, model, prompt: rome });
    const messages = [{ role: "user", content: rome }, ...called.response.messages];
    return called.toolResults[0].output === "clear" && (await generateText({ ...short, model, messages })).text;
  });
  await feature("structured output", name, async () =>
    (await generateText({ ...short, model, prompt: "The sky is blue.", output })).output.sky);
  await feature("tools + structured output", name, async () => {
    const answer = await generateText({ ...short, model, prompt: "The sky is blue.", tools: { weather }, output });
    return answer.toolCalls.length || answer.output.sky;
  });
}
await feature("multi-turn", "", async () => {
  const first = await generateText({ ...common, prompt: "Say hello." });
  const messages = [{ role: "user", content: "Say hello." }, ...first.response.messages, { role: "user", content: "Again." }];
  return (await generateText({ ...common, messages })).text;
});
await feature("parallel tools", "", async () => {
  const both = await generateText({ ...common, ...named, prompt: rome, providerOptions: { ours: { min_tokens: 30 } } });
  const one = await generateText({ ...common, ...named, ...oneCall, prompt: rome });
  return both.toolCalls.length > 1 && one.toolCalls.length === 1;
});
await feature("structured output", "streamed", async () => {
  const result = streamText({ ...common, prompt: "The sky is blue.", output });
  let last;
  for await (const part of result.partialOutputStream) last = part;
  return last.sky;
});
await feature("structured output", "choice", async () =>
  (await generateText({ ...common, prompt: "Is tea hot?", output: Output.choice({ options: ["yes", "no"] }) })).output);
await feature("constraints", "", async () =>
  (await generateText({ ...common, prompt: "Is tea hot?", providerOptions: { ours: { guided_regex: "yes|no" } } })).text.length <= 3);
await feature("messages", "text, stream, tools", async () => {
  const model = anthropic("claude-sonnet-4-5");
  const { text } = await generateText({ ...short, model, prompt: "Say hello." });
  const called = await generateText({ ...short, ...named, model, prompt: rome });
  return text && called.toolCalls.length;
});
await feature("messages", "structured output", async () =>
  (await generateText({ ...short, model: anthropic("claude-sonnet-4-5"), prompt: "The sky is blue.", output })).output.sky);
await feature("logprobs", "openai.chat", async () => {
  const model = openai.chat("default");
  const { providerMetadata } = await generateText({ ...short, model, prompt: "Say hello.", providerOptions: { openai: { logprobs: 2 } } });
  return providerMetadata.openai.logprobs.length;
});
await feature("usage", "", async () => {
  const stream = streamText({ ...common, prompt: "Say hello." });
  return (await stream.usage).totalTokens === (await generateText({ ...common, prompt: "Say hello." })).usage.totalTokens;
});
await feature("errors", "", async () => {
  const error = await generateText({ ...common, temperature: -1, prompt: "Say hello." }).catch((failure) => failure);
  return APICallError.isInstance(error) && error.statusCode === 400 && error.message.includes("temperature");
});
await feature("embeddings", "", async () =>
  (await embedMany({ model: openai.embedding("default"), values: ["hello", "world"], maxRetries: 0 })).embeddings.length === 2);
