// A program of a user of the Vercel AI SDK's `openai(M)`.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { report } from "./features.mjs";

const openai = createOpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none" });
const common = { model: openai("default"), temperature: 0, maxOutputTokens: 60, maxRetries: 0 };
const weather = tool({
  description: "Return the weather of a city.",
  inputSchema: z.object({ city: z.enum(["Oslo", "Rome"]) }),
  execute: async () => "clear",
});
const Weather = z.object({ sky: z.enum(["clear", "cloudy"]) });
const found = {};
const first = await generateText({ ...common, prompt: "Say hello." });
found.text = first.text.length > 0;
let streamed = "";
for await (const piece of streamText({ ...common, prompt: "Say hello." }).textStream) streamed += piece;
found.stream = streamed === first.text;
found.object = (await generateText({ ...common, prompt: "The sky is blue.", output: Output.object({ schema: Weather }) })).output;
const messages = [{ role: "user", content: "Say hello." }, ...first.response.messages, { role: "user", content: "Again." }];
found["messages by reference"] = (await generateText({ ...common, messages })).text.length > 0;
const called = await generateText({
  ...common, prompt: "How is the weather in Rome?", tools: { weather }, toolChoice: "required", stopWhen: stepCountIs(1),
  providerOptions: { openai: { parallelToolCalls: false } },
});
found.tools = called.toolResults[0]?.output;
const after = [{ role: "user", content: "How is the weather in Rome?" }, ...called.response.messages];
found["after the tool"] = (await generateText({ ...common, messages: after, tools: { weather }, toolChoice: "none" })).text.length > 0;
found["tools and object"] = (await generateText({
  ...common, prompt: "The sky is blue.", tools: { weather }, stopWhen: stepCountIs(3), output: Output.object({ schema: Weather }),
})).output;
report("responses", found);
