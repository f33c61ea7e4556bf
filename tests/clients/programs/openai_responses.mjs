// A program of a user of OpenAI's client for Node.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { report } from "./features.mjs";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const common = { model: "default", temperature: 0, max_output_tokens: 40 };
const found = {};
const first = await client.responses.create({ ...common, input: "Say hello." });
found.text = first.output_text.length > 0;
const types = [];
const stream = client.responses.stream({ ...common, input: "Say hello." });
for await (const event of stream) types.push(event.type);
found.stream = (await stream.finalResponse()).output_text === first.output_text && types.at(-1);
const Weather = z.object({ sky: z.enum(["clear", "cloudy"]) });
const parsed = await client.responses.parse({
  ...common, input: "The sky is blue.", text: { format: zodTextFormat(Weather, "weather") },
});
found.parse = parsed.output_parsed;
const second = await client.responses.create({ ...common, input: "Again.", previous_response_id: first.id });
found.retrieve = (await client.responses.retrieve(second.id)).output_text === second.output_text;
const items = [];
for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 2 })) items.push(item.type);
found.inputItems = items.length === 3;
await client.responses.delete(first.id);
found.deleted = await client.responses.retrieve(first.id).catch((error) => error.status);
report("responses", found);
