// The state of a server as `GET /stats/events` sends it, and what the page computes of it.
export interface Figures {
  running: number;
  waiting: number;
  pages: number;
  pages_used: number;
  preemptions: number;
  tokens: number;
  cached_tokens: number;
  guest_cpu_s: number;
  steps: number;
  tokens_per_s: number;
  step_s: number | null;
  forward_s: number | null;
}

export interface Engine {
  replica: number;
  state: string;
  restarts: number;
  open: number;
  memory_bytes: number;
  max_num_seqs: number | null;
  cpus?: number[];
  threads?: number;
  figures: Figures | null;
}

interface StagePart {
  first: number;
  last: number;
  weight_bytes: number;
  page_bytes: number;
  computed_s: number;
}

interface Stage extends StagePart {
  name: string;
  address: string;
  device: string;
  memory_bytes: number;
  waited_s: number;
  rtt_s: number;
}

export interface Pipeline {
  state: string;
  trouble: string;
  epoch: number | null;
  interruptions: number;
  num_pages: number;
  num_steps: number;
  hop_s: number | null;
  stages: Stage[];
  driver: StagePart | null;
}

export interface Model {
  model: string;
  state: string;
  max_len: number | null;
  num_layers: number | null;
  admitted: number;
  queue_capacity: number;
  loads: number;
  engines: Engine[];
  pipeline: Pipeline | null;
}

export interface RunningRequest {
  id: string;
  request_id: string;
  model: string;
  key: string;
  state: string;
  started: number;
  prompt_tokens: number;
  output_tokens: number;
}

export interface ServerState {
  time: number;
  draining: boolean;
  models: Model[];
  num_requests: number;
  requests: RunningRequest[];
}

export type Level = "good" | "warn" | "bad" | "idle";

const LEVELS: Record<string, Level> = {
  up: "good",
  loaded: "good",
  ready: "good",
  starting: "warn",
  loading: "warn",
  draining: "warn",
  hanging: "bad",
  restarting: "bad",
  failed: "bad",
  interrupted: "bad",
};

/** How serious a state is; the states that nothing is expected of are idle. */
export function levelOf(state: string): Level {
  return LEVELS[state] ?? "idle";
}

/** One row of the table of stages. `layers` null: the files do not say. */
export interface StageRow {
  name: string;
  place: string;
  layers: string | null;
  memory_bytes: number;
  compute_s: number | null;
  wait_s: number | null;
  rtt_s: number | null;
}

/** The layers `first` to `last`, the second one not included, as people count. */
export function layers(first: number, last: number): string {
  if (first === last) return "none";
  return last - first === 1 ? `${first}` : `${first} to ${last - 1}`;
}

/** The stages of a model: those of its pipeline, the driver last, or the one process that computes all layers. Times
 * are means of a step. */
export function stageRows(model: Model, names: { driver: string; whole: string }): StageRow[] {
  const { pipeline } = model;
  if (!pipeline) {
    return model.engines.map((engine) => ({
      name: model.engines.length > 1 ? `${names.whole} ${engine.replica}` : names.whole,
      place: "",
      layers: model.num_layers === null ? null : layers(0, model.num_layers),
      memory_bytes: engine.memory_bytes,
      compute_s: engine.figures?.forward_s ?? null,
      wait_s: null,
      rtt_s: null,
    }));
  }
  const mean = (sum: number) => (pipeline.num_steps ? sum / pipeline.num_steps : null);
  const memory = (part: StagePart) => part.weight_bytes + part.page_bytes * pipeline.num_pages;
  const rows = pipeline.stages.map((stage) => ({
    name: stage.name,
    place: stage.address,
    layers: layers(stage.first, stage.last),
    memory_bytes: memory(stage),
    compute_s: mean(stage.computed_s),
    wait_s: mean(stage.waited_s),
    rtt_s: stage.rtt_s,
  }));
  const { driver } = pipeline;
  if (!driver) return rows;
  return [
    ...rows,
    {
      name: names.driver,
      place: "",
      layers: layers(driver.first, driver.last),
      memory_bytes: memory(driver),
      compute_s: mean(driver.computed_s),
      wait_s: null,
      rtt_s: null,
    },
  ];
}

/** The engines whose state is another one than before, for a screen reader. */
export function changes(before: ServerState | null, now: ServerState): { model: string; engine: Engine }[] {
  if (!before) return [];
  const known = new Map(before.models.flatMap(({ model, engines }) => engines.map((each) => [`${model} ${each.replica}`, each.state])));
  return now.models.flatMap(({ model, engines }) =>
    engines.filter((each) => known.get(`${model} ${each.replica}`) !== each.state).map((engine) => ({ model, engine })),
  );
}

/** Milliseconds before attempt `number`, from 0: half a second, doubling up to ten. */
export function pauseBefore(number: number): number {
  return Math.min(10_000, 500 * 2 ** number);
}
