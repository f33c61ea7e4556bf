// The last hour of a model as `GET /stats/history` has it, and the lines that the page draws of it.
interface Percentiles {
  p50: number | null;
  p99: number | null;
}

export interface Interval {
  time: number;
  prompt_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  ended: number;
  streams: number;
  waiting: number;
  first_token_s: Percentiles;
  inter_token_s: Percentiles;
}

export interface History {
  model: string;
  interval_s: number;
  intervals: Interval[];
}

/** A line: one value for each moment; null where nothing was measured. */
export type Line = (number | null)[];

/** The lines of one hour. `times`: the begins of the intervals, in seconds since 1970, one by one. */
export interface Lines {
  times: number[];
  tokensPerSecond: Line;
  firstP50: Line;
  firstP99: Line;
  betweenP50: Line;
  betweenP99: Line;
  streams: Line;
  waiting: Line;
  cached: Line;
}

const HOUR_S = 3600;

/** The share of the prompts' tokens that were in the cache; null without prompts. */
export function cachedShare(interval: Interval): number | null {
  return interval.prompt_tokens ? interval.cached_tokens / interval.prompt_tokens : null;
}

/** The lines up to `now`, in seconds since 1970. In intervals that the server left out, nothing happened. */
export function linesOf(history: History, now: number): Lines {
  const step = history.interval_s;
  const last = Math.floor(now / step);
  const known = new Map(history.intervals.map((each) => [Math.round(each.time / step), each]));
  const numbers = Array.from({ length: HOUR_S / step }, (_, place) => last - HOUR_S / step + 1 + place);
  const all = numbers.map((number) => known.get(number));
  const line = (value: (interval: Interval) => number | null, otherwise: number | null = null): Line =>
    all.map((each) => (each ? value(each) : otherwise));
  return {
    times: numbers.map((number) => number * step),
    tokensPerSecond: line((each) => each.output_tokens / step, 0),
    firstP50: line((each) => each.first_token_s.p50),
    firstP99: line((each) => each.first_token_s.p99),
    betweenP50: line((each) => each.inter_token_s.p50),
    betweenP99: line((each) => each.inter_token_s.p99),
    streams: line((each) => each.streams, 0),
    waiting: line((each) => each.waiting, 0),
    cached: line(cachedShare),
  };
}

/** The last value of a line that is there, and its highest. */
export function summary(line: Line): { last: number | null; highest: number | null } {
  const found = line.filter((value) => value !== null);
  return { last: found.at(-1) ?? null, highest: found.length ? Math.max(...found) : null };
}
