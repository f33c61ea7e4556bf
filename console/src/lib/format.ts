// Numbers as people read them.
export const NONE = "–";

/** 1536 → "1.5 KiB". */
export function bytes(value: number | null): string {
  if (value === null) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${unit > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** 0.0123 → "12.3 ms"; 75 → "1 min 15 s". */
export function seconds(value: number | null): string {
  if (value === null) return NONE;
  if (value < 0.0995) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  return whole < 3600
    ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Whole seconds since something began: 2 → "2 s". */
export function age(value: number): string {
  const whole = Math.max(0, Math.floor(value));
  return whole < 60 ? `${whole} s` : seconds(whole);
}

/** 1234567 → "1,234,567". */
export function count(value: number | null): string {
  return value === null ? NONE : value.toLocaleString("en");
}

/** Unix seconds → a date and a time of the browser's place. */
export function moment(value: number | null): string {
  return value === null ? NONE : new Date(value * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** 0.1234 → "12.34 %", for probabilities. */
export function percent(probability: number): string {
  if (probability > 0 && probability < 0.0001) return "<0.01 %";
  return `${(100 * probability).toFixed(2)} %`;
}

/** Seconds → milliseconds, with more digits than `seconds` has: 0.00123 → "1.23 ms". */
export function milliseconds(value: number): string {
  const ms = 1000 * value;
  return ms < 0.01 ? "<0.01 ms" : `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
}
