// A program of a user of promptfoo's providers for chat, completions and messages.
import promptfoo from "promptfoo";
import { feature } from "./features.mjs";

const url = process.argv[2];
const common = { apiBaseUrl: `${url}/v1`, apiKey: "none", temperature: 0, max_tokens: 60 };
const schema = {
  type: "object", properties: { sky: { enum: ["clear", "cloudy"] } }, required: ["sky"], additionalProperties: false,
};
const format = { type: "json_schema", json_schema: { name: "weather", strict: true, schema } };
const parameters = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "weather", parameters } }];

async function ask(id, config, asserted) {
  const tests = [{ vars: { sky: "blue" }, ...(asserted && { assert: asserted }) }];
  const run = await promptfoo.evaluate(
    { prompts: ["The sky is {{sky}}."], providers: [{ id, config: { ...common, ...config } }], tests },
    { cache: false, maxConcurrency: 1, showProgressBar: false },
  );
  const { results: [result] } = run.toEvaluateSummary ? await run.toEvaluateSummary() : run;
  if (result.error) throw new Error(result.error);
  return result;
}

await feature("chat", "openai:chat", async () => (await ask("openai:chat:default", {})).response.output);
await feature("chat", "openai:completion", async () => (await ask("openai:completion:default", {})).response.output);
await feature("structured output", "", async () => {
  const asserted = [{ type: "is-json", value: schema }];
  return (await ask("openai:chat:default", { response_format: format }, asserted)).success;
});
await feature("tools", "", async () => {
  const asserted = [{ type: "is-valid-openai-tools-call" }];
  return (await ask("openai:chat:default", { tools, tool_choice: "required", passthrough: { parallel_tool_calls: false } }, asserted)).success;
});
await feature("constraints", "", async () =>
  ["yes", "no"].includes((await ask("openai:chat:default", { passthrough: { guided_choice: ["yes", "no"] } })).response.output));
await feature("usage", "", async () => (await ask("openai:chat:default", {})).response.tokenUsage.total > 0);
await feature("errors", "", async () => {
  const error = await ask("openai:chat:default", { temperature: -1 }).catch((failure) => failure);
  return error instanceof Error && error.message.includes("temperature");
});
await feature("messages", "", async () =>
  (await ask("anthropic:messages:claude-sonnet-4-5", { apiBaseUrl: url })).response.output);
process.exit(0);
