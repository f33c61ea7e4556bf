// Numbers as the page shows them.

export function percent(probability: number): string {
  if (probability > 0 && probability < 0.0001) return "<0.01 %";
  return `${(100 * probability).toFixed(2)} %`;
}

export function milliseconds(seconds: number): string {
  const ms = 1000 * seconds;
  return ms < 0.01 ? "<0.01 ms" : `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
}
