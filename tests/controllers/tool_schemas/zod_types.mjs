// Writes zod_types.json: the JSON Schemas that zod makes of types of fields, with JSON that fits and JSON that does not.
// zod itself decides which is which; the script fails where zod and this table differ.
//
//     npm install --no-save zod@4.6.7 && node zod_types.mjs > zod_types.json
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import * as z from "zod";

const category = z.object({ name: z.string(), get children() { return z.array(category); } });
const cat = z.object({ kind: z.literal("cat"), lives: z.int().min(0).max(9) });
const dog = z.object({ kind: z.literal("dog"), tricks: z.array(z.string()) });

// name: [type, JSON that fits, JSON that does not]
const types = {
  string: [z.string(), ["", "é\n"], [1, null]],
  "string lengths": [z.string().min(2).max(3), ["ab", "abc"], ["a", "abcd"]],
  length: [z.string().length(2), ["ab"], ["a"]],
  nonempty: [z.string().nonempty(), ["a"], [""]],
  regex: [z.string().regex(/^[A-Z]{2}-\d+$/), ["AB-12"], ["AB-", "ab-1"]],
  "regex and length": [z.string().regex(/^[a-z]+$/).max(4), ["abcd"], ["abcde", "AB"]],
  "look-ahead": [z.string().regex(/^(?!admin)[a-z]+$/), ["user"], ["admin", "administrator"]],
  startsWith: [z.string().startsWith("x-"), ["x-a"], ["a"]],
  endsWith: [z.string().endsWith(".js"), ["a.js"], ["a.ts"]],
  includes: [z.string().includes("@"), ["a@b"], ["ab"]],
  lowercase: [z.string().lowercase(), ["abc"], ["aBc"]],
  uppercase: [z.string().uppercase(), ["ABC"], ["aBc"]],
  email: [z.email(), ["ada@example.com"], ["ada", "@example.com"]],
  uuid: [z.uuid(), ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567"]],
  uuidv4: [z.uuidv4(), ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]],
  guid: [z.guid(), ["123e4567-e89b-42d3-a456-426614174000"], ["x"]],
  url: [z.url(), ["https://example.com/a"], ["no url"]],
  hostname: [z.hostname(), ["example.com"], ["-a-.b", "a b"]],
  emoji: [z.emoji(), ["😀"], ["a"]],
  nanoid: [z.nanoid(), ["V1StGXR8_Z5jdHi6B-myT"], ["V1StGXR8"]],
  cuid: [z.cuid(), ["cjld2cjxh0000qzrmn831i7rn"], ["x"]],
  cuid2: [z.cuid2(), ["tz4a98xxat96iws9zmbrgj3a"], ["A!"]],
  ulid: [z.ulid(), ["01ARZ3NDEKTSV4RRFFQ69G5FAV"], ["01ARZ3"]],
  ipv4: [z.ipv4(), ["127.0.0.1"], ["256.0.0.1"]],
  ipv6: [z.ipv6(), ["::1", "2001:db8::1"], ["g::1"]],
  cidrv4: [z.cidrv4(), ["10.0.0.0/8"], ["10.0.0.0", "10.0.0.0/33"]],
  cidrv6: [z.cidrv6(), ["2001:db8::/32"], ["2001:db8::"]],
  mac: [z.mac(), ["00:1a:2b:3c:4d:5e"], ["00:1a"]],
  base64: [z.base64(), ["aGVsbG8="], ["a*"]],
  base64url: [z.base64url(), ["aGVsbG8"], ["a*"]],
  e164: [z.e164(), ["+14155552671"], ["12"]],
  "iso.date": [z.iso.date(), ["2024-02-29"], ["2023-02-29", "today"]],
  "iso.time": [z.iso.time(), ["23:59:59"], ["24:00:00"]],
  "iso.datetime": [z.iso.datetime(), ["2024-01-31T10:00:00Z"], ["2024-01-32T10:00:00Z"]],
  "iso.duration": [z.iso.duration(), ["P1D", "PT5M"], ["an hour"]],
  number: [z.number(), [1.5, -2], ["1", null]],
  "number bounds": [z.number().gt(0).lte(1), [0.5, 1], [0, 1.5]],
  int: [z.int(), [3, -3], [1.5]],
  int32: [z.int32(), [2147483647], [2147483648]],
  uint32: [z.uint32(), [4294967295], [-1]],
  float32: [z.float32(), [1.5], ["x"]],
  positive: [z.number().positive(), [0.1], [0, -1]],
  multipleOf: [z.number().multipleOf(0.25), [0.75], [0.3]],
  "multipleOf 0.3": [z.number().multipleOf(0.3), [0.6, 3], [0.4]],
  boolean: [z.boolean(), [true], [2]],
  null: [z.null(), [null], [0]],
  any: [z.any(), [null, [1]], []],
  unknown: [z.unknown(), [{ a: 1 }], []],
  literal: [z.literal(["a", 1, null, true]), ["a", 1, null, true], ["b", 2]],
  enum: [z.enum(["red", "blue"]), ["red"], ["green"]],
  "native enum": [z.enum({ Low: 1, High: 10 }), [1, 10], [2]],
  nullable: [z.string().nullable(), ["a", null], [1]],
  union: [z.union([z.string(), z.number()]), ["a", 1], [null, []]],
  "discriminated union": [z.discriminatedUnion("kind", [cat, dog]), [{ kind: "cat", lives: 9 }], [{ kind: "cow" }, { kind: "cat" }]],
  intersection: [z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })), [{ a: "x", b: 1 }], [{ a: "x" }]],
  array: [z.array(z.string()), [[], ["a"]], [[1]]],
  "array lengths": [z.array(z.int()).min(1).max(2), [[1], [1, 2]], [[], [1, 2, 3]]],
  tuple: [z.tuple([z.string(), z.number()]), [["a", 1]], [["a"], [1, "a"]]],
  "tuple with rest": [z.tuple([z.string()], z.number()), [["a"], ["a", 1, 2]], [["a", "b"]]],
  record: [z.record(z.string(), z.number()), [{}, { a: 1 }], [{ a: "x" }]],
  "record of enum": [z.record(z.enum(["a", "b"]), z.number()), [{ a: 1, b: 2 }], [{ a: 1 }, { a: 1, b: 2, c: 3 }]],
  "partial record": [z.partialRecord(z.enum(["a", "b"]), z.number()), [{ a: 1 }, {}], [{ c: 3 }]],
  object: [z.object({ a: z.string(), b: z.number().optional() }), [{ a: "x", b: 1 }, { a: "x" }], [{ b: 1 }]],
  "strict object": [z.strictObject({ a: z.string() }), [{ a: "x" }], [{ a: "x", b: 1 }]],
  "loose object": [z.looseObject({ a: z.string() }), [{ a: "x", b: [1] }], [{ b: 1 }]],
  catchall: [z.object({ a: z.string() }).catchall(z.number()), [{ a: "x", b: 1 }], [{ a: "x", b: "y" }]],
  recursive: [category, [{ name: "a", children: [{ name: "b", children: [] }] }], [{ name: "a", children: [1] }]],
  json: [z.json(), [{ a: [1, null] }], []],
  default: [z.string().default("a"), ["b"], [1]],
  readonly: [z.array(z.string()).readonly(), [["a"]], [[1]]],
  describe: [z.string().describe("a name").meta({ title: "Name", examples: ["Ada"] }), ["a"], [1]],
  "template literal": [z.templateLiteral(["v", z.int()]), ["v12"], ["12", "v"]],
  stringbool: [z.stringbool(), ["true"], [1], "input"],
};

const table = {};
for (const [name, [type, valid, invalid, io]] of Object.entries(types)) {
  const model = z.object({ x: type });
  for (const [values, fits] of [[valid, true], [invalid, false]])
    for (const x of values)
      if (model.safeParse({ x }).success !== fits) throw new Error(`${name}: ${JSON.stringify(x)}: zod says ${!fits}`);
  table[name] = { schema: z.toJSONSchema(model, { io: io ?? "output" }), valid, invalid };
}
const manifest = createRequire(import.meta.url).resolve("zod/package.json");
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
console.log(JSON.stringify({ zod: version, types: table }, null, 1));
