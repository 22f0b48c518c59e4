import { rowsOf, type Comparison, type Row } from './report.ts';

const WIDTH = 640;
const HEIGHT = 180;

const escape = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

/** A round number near a third of `ms`, for the axis. */
function stepOf(ms: number): number {
  const raw = ms / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5].findLast((digit) => digit * power <= raw) ?? 1) * power;
}

/** Which part of the pods was ready (or gone) by when: a step a pod, the pods of all rounds of one side together. */
function curve(comparison: Comparison, group: string, what: 'readyMs' | 'goneMs'): string {
  const samples = comparison.samples.filter((sample) => `${sample.flavour} ${sample.count}` === group);
  const most = Math.max(...samples.flatMap((sample) => sample[what]), 1);
  const x = (ms: number): string => ((ms / most) * WIDTH).toFixed(1);
  const lines = (['upstream', 'ours'] as const).map((side) => {
    const times = samples.flatMap((sample) => (sample.side === side ? sample[what] : [])).toSorted((a, b) => a - b);
    const y = (done: number): string => (HEIGHT - (done / times.length) * HEIGHT).toFixed(1);
    const path = times.map((ms, index) => `H${x(ms)}V${y(index + 1)}`).join('');
    return `<path class="${side}" fill="none" stroke-width="2" d="M0,${HEIGHT}${path}H${WIDTH}"><title>${side}</title></path>`;
  });
  const step = stepOf(most);
  const ticks = Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step).map(
    (ms) =>
      `<line class="grid" x1="${x(ms)}" y1="0" x2="${x(ms)}" y2="${HEIGHT}"/><text x="${x(ms)}" y="${HEIGHT + 16}" text-anchor="middle">${Number((ms / 1000).toFixed(2))} s</text>`,
  );
  const half = `<line class="grid" x1="0" y1="${HEIGHT / 2}" x2="${WIDTH}" y2="${HEIGHT / 2}"/><text x="-6" y="${HEIGHT / 2 + 4}" text-anchor="end">50%</text><text x="-6" y="4" text-anchor="end">100%</text>`;
  const [flavour, count] = group.split(' ');
  const title = `${flavour}, ${count === '1' ? 'one' : count} at once: ${what === 'readyMs' ? 'created → Ready' : 'deleted → gone'}`;
  return `<figure><figcaption>${escape(title)}</figcaption><svg role="img" aria-label="${escape(title)}" viewBox="-48 -10 ${WIDTH + 72} ${HEIGHT + 34}" xmlns="http://www.w3.org/2000/svg">
${ticks.join('')}${half}<line class="axis" x1="0" y1="${HEIGHT}" x2="${WIDTH}" y2="${HEIGHT}"/>${lines.join('')}</svg></figure>`;
}

function tableRow(row: Row): string {
  const cell = (value: number | null, digits: number): string => `<td>${value === null ? '–' : value.toFixed(digits)}</td>`;
  const mark = row.ratio === null ? '' : row.ratio <= 1 ? ' class="good"' : row.ratio <= 1.1 ? '' : ' class="bad"';
  return `<tr${mark}><th scope="row">${escape(row.what)}</th>${cell(row.upstream, 3)}${cell(row.ours, 3)}${cell(row.ratio, 2)}<td>${escape(row.unit)}</td></tr>`;
}

/** One page that needs nothing beside itself. */
export function pageOf(comparison: Comparison): string {
  const groups = [...new Set(comparison.samples.map(({ flavour, count }) => `${flavour} ${count}`))];
  const versions = Object.entries(comparison.versions).map(([name, version]) => `${name} ${version}`);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The same pods on two kubelets</title><meta name="viewport" content="width=device-width">
<style>:root{color-scheme:light dark;--ink:light-dark(#111,#e5e7eb);--soft:light-dark(#4b5563,#9ca3af);--line:light-dark(#e5e7eb,#374151);--upstream:light-dark(#b45309,#fbbf24);--ours:light-dark(#2563eb,#60a5fa);--good:light-dark(#047857,#34d399);--bad:light-dark(#b91c1c,#f87171)}
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:var(--ink)}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1rem 2rem}figure{margin:0}svg{width:100%;height:auto}svg text{font-size:13px;fill:var(--soft)}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}path.upstream{stroke:var(--upstream);stroke-dasharray:7 3}path.ours{stroke:var(--ours)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}td,th{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right}th{text-align:left;font-weight:400}.good td:nth-child(4){color:var(--good)}.bad td:nth-child(4){color:var(--bad);font-weight:600}
b.upstream{color:var(--upstream)}b.ours{color:var(--ours)}</style></head><body>
<h1>The same pods on two kubelets</h1>
<p>${escape(comparison.date)}, ${comparison.cpus} CPUs, ${escape(versions.join(', '))}. <b class="upstream">Upstream (dashed)</b> and <b class="ours">ours</b> in one run, interleaved, the order of nodes alternated. Ratios below 1 are ours’ favour; above 1.1 they are red.</p>
<table><thead><tr><th scope="col">figure, median over rounds</th><th scope="col">upstream</th><th scope="col">ours</th><th scope="col">ratio</th><th scope="col">unit</th></tr></thead>
<tbody>${rowsOf(comparison).map(tableRow).join('\n')}</tbody></table>
<h2>Pods over time</h2>
<div class="plots">
${groups.flatMap((group) => [curve(comparison, group, 'readyMs'), curve(comparison, group, 'goneMs')]).join('\n')}
</div>
</body></html>
`;
}
