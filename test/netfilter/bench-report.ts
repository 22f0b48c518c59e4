/** Figures of `nodelet bench netfilter`, judged and printed. */

export interface Figures {
  coldMs: number;
  coldSyncMs: number;
  lockMs: number;
  changeKernelMs: number;
  changeProxyMs: number;
  burstSyncs: number;
  burstMs: number;
  peakMiB: number;
  nowMiB: number;
  /** Of it the process's own pages, and those of files: the program and its libraries, which other processes share. */
  anonMiB: number;
  fileMiB: number;
  cpuSeconds: number;
}

export interface Cell {
  mode: string;
  services: number;
  endpoints: number;
  ours: Figures | null;
  upstream: Figures | null;
}

export interface Latency {
  who: string;
  mode: string;
  few: { services: number; p50Ms: number; p99Ms: number };
  many: { services: number; p50Ms: number; p99Ms: number };
}

export function quantile(sorted: readonly number[], part: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted.length % 2 === 1 ? sorted[(sorted.length - 1) / 2]! : (sorted[sorted.length / 2 - 1]! + sorted[sorted.length / 2]!) / 2;
}

/** Of each figure of several runs; null without any. */
export function medians(runs: readonly Figures[]): Figures | null {
  if (runs.length === 0) return null;
  return Object.fromEntries(Object.keys(runs[0]!).map((key) => [key, median(runs.map((figures) => figures[key as keyof Figures]))])) as unknown as Figures;
}

/** What each figure may be at most, as a part of upstream's in the same run; 1,000 changes within a second by number. */
const AIMS: readonly { key: keyof Figures; what: string; unit: string; ratio?: number; atMost?: number }[] = [
  { key: 'coldMs', what: 'cold: process start to all written', unit: 'ms', ratio: 0.5 },
  { key: 'coldSyncMs', what: 'cold: the sync alone', unit: 'ms', ratio: 0.5 },
  { key: 'lockMs', what: 'cold: the longest hold of the lock', unit: 'ms' },
  { key: 'changeKernelMs', what: 'one change, API to kernel', unit: 'ms', ratio: 0.5 },
  { key: 'changeProxyMs', what: 'one change, in the proxy', unit: 'ms', ratio: 0.5 },
  { key: 'burstSyncs', what: '1,000 changes in 1 s, writes', unit: '', atMost: 3 },
  { key: 'burstMs', what: '1,000 changes in 1 s, until written', unit: 'ms' },
  { key: 'peakMiB', what: 'memory, peak', unit: 'MiB', ratio: 1 },
  { key: 'nowMiB', what: 'memory at the end', unit: 'MiB' },
  { key: 'anonMiB', what: '  of it anonymous', unit: 'MiB' },
  { key: 'fileMiB', what: '  of it of files', unit: 'MiB' },
  { key: 'cpuSeconds', what: 'processor time', unit: 's' },
];

function number(value: number, unit: string): string {
  if (Number.isNaN(value)) return '-';
  return `${value >= 100 || unit === '' ? Math.round(value) : value.toFixed(1)}${unit === '' ? '' : ` ${unit}`}`;
}

function verdict(aim: (typeof AIMS)[number], ours: Figures, upstream: Figures | null): { text: string; missed: boolean } {
  const value = ours[aim.key];
  if (aim.atMost !== undefined) return { text: `at most ${aim.atMost}: ${value <= aim.atMost ? 'met' : 'MISSED'}`, missed: value > aim.atMost };
  if (upstream === null) return { text: '', missed: false };
  const ratio = value / upstream[aim.key];
  // Upstream's own figure can be too coarse to tell anything.
  if (!Number.isFinite(ratio)) return { text: '-', missed: false };
  const text = `${ratio.toFixed(2)}×`;
  if (aim.ratio === undefined) return { text, missed: false };
  return { text: `${text}, at most ${aim.ratio}×: ${ratio <= aim.ratio ? 'met' : 'MISSED'}`, missed: ratio > aim.ratio };
}

/** The page, and how many aims were missed. */
export function page(cells: readonly Cell[], latencies: readonly Latency[]): { text: string; missed: number } {
  const lines: string[] = [];
  let missed = 0;
  const row = (...columns: string[]): void =>
    void lines.push(`  ${columns[0]!.padEnd(38)}${columns[1]!.padStart(12)}${columns[2]!.padStart(12)}  ${columns[3] ?? ''}`.trimEnd());
  for (const { mode, services, endpoints, ours, upstream } of cells) {
    lines.push(`${mode}, ${services} Services × ${endpoints} endpoints`);
    row('', 'ours', 'upstream', '');
    for (const aim of AIMS) {
      const judged = ours === null ? { text: '', missed: false } : verdict(aim, ours, upstream);
      if (judged.missed) missed++;
      const show = (figures: Figures | null): string => (figures === null ? '-' : number(figures[aim.key], aim.unit));
      row(aim.what, show(ours), show(upstream), judged.text);
    }
    lines.push('');
  }
  for (const [key, what] of [
    ['changeKernelMs', 'API to kernel'],
    ['changeProxyMs', 'in the proxy'],
  ] as const) {
    for (const [mode, endpoints] of new Set(cells.map((cell) => `${cell.mode} ${cell.endpoints}`)).values().map((id) => id.split(' ') as [string, string])) {
      const of = cells
        .filter((cell) => cell.mode === mode && cell.endpoints === Number(endpoints) && cell.ours !== null)
        .toSorted((a, b) => a.services - b.services);
      if (of.length < 2) continue;
      const growth = of.at(-1)!.ours![key] / of[0]!.ours![key];
      lines.push(`  ${mode} × ${endpoints}: one change, ${what}, at ${of.at(-1)!.services} is ${growth.toFixed(2)}× that at ${of[0]!.services}`);
    }
  }
  for (const { who, mode, few, many } of latencies) {
    const p50 = many.p50Ms / few.p50Ms;
    const p99 = many.p99Ms / few.p99Ms;
    const judged = who === 'ours' && mode === 'nftables';
    if (judged && p50 > 1.1) missed++;
    if (judged && p99 > 1.5) missed++;
    const word = (ratio: number, limit: number): string => `${ratio.toFixed(2)}×${judged ? `, at most ${limit}×: ${ratio <= limit ? 'met' : 'MISSED'}` : ''}`;
    lines.push(`first packet, ${who} ${mode}: ${few.services} → ${many.services} Services`);
    lines.push(`  p50 ${few.p50Ms.toFixed(3)} → ${many.p50Ms.toFixed(3)} ms (${word(p50, 1.1)})`);
    lines.push(`  p99 ${few.p99Ms.toFixed(3)} → ${many.p99Ms.toFixed(3)} ms (${word(p99, 1.5)})`);
  }
  return { text: `${lines.join('\n')}\n`, missed };
}
