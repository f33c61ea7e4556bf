// A program of a user of promptfoo's `openai:responses`.
import promptfoo from "promptfoo";
import { report } from "./features.mjs";

const common = { apiBaseUrl: `${process.argv[2]}/v1`, apiKey: "none", temperature: 0, max_output_tokens: 40 };
const schema = {
  type: "object", properties: { sky: { enum: ["clear", "cloudy"] } }, required: ["sky"], additionalProperties: false,
};
const format = { type: "json_schema", json_schema: { name: "weather", strict: true, schema } };
const found = {};
for (const [name, more] of Object.entries({ text: {}, schema: { response_format: format } })) {
  const run = await promptfoo.evaluate(
    { prompts: ["The sky is {{sky}}."], providers: [{ id: "openai:responses:default", config: { ...common, ...more } }],
      tests: [{ vars: { sky: "blue" } }] },
    { cache: false, maxConcurrency: 1, showProgressBar: false },
  );
  const summary = run.toEvaluateSummary ? await run.toEvaluateSummary() : run;
  const [result] = summary.results;
  if (result.error) throw new Error(result.error);
  found[name] = name === "text" ? result.response.output.length > 0 : result.response.output;
}
report("responses", found);
process.exit(0);
