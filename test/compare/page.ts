import { rowsOf, type Comparison, type Row, type Side } from './report.ts';

const WIDTH = 640;
const HEIGHT = 180;
const COLOURS: Readonly<Record<Side, string>> = { upstream: '#6b7280', ours: '#2563eb' };

const escape = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

/** How many of the pods were ready (or gone) by when: one line a round, all rounds of one group in one plot. */
function curve(comparison: Comparison, group: string, what: 'readyMs' | 'goneMs'): string {
  const samples = comparison.samples.filter((sample) => `${sample.flavour} ${sample.count}` === group);
  const most = Math.max(...samples.flatMap((sample) => sample[what]), 1);
  const lines = samples.map((sample) => {
    const points = sample[what]
      .toSorted((a, b) => a - b)
      .map((ms, index) => `${((ms / most) * WIDTH).toFixed(1)},${(HEIGHT - ((index + 1) / sample.count) * HEIGHT).toFixed(1)}`);
    return `<polyline fill="none" stroke="${COLOURS[sample.side]}" stroke-width="1.5" points="0,${HEIGHT} ${points.join(' ')}"><title>${sample.side}</title></polyline>`;
  });
  const title = `${group} pods at once: ${what === 'readyMs' ? 'created → Ready' : 'deleted → gone'}`;
  return `<figure><figcaption>${escape(title)}</figcaption><svg role="img" aria-label="${escape(title)}" viewBox="-8 -8 ${WIDTH + 16} ${HEIGHT + 36}" xmlns="http://www.w3.org/2000/svg">
<line x1="0" y1="${HEIGHT}" x2="${WIDTH}" y2="${HEIGHT}" stroke="#d1d5db"/>${lines.join('')}
<text x="0" y="${HEIGHT + 18}">0</text><text x="${WIDTH}" y="${HEIGHT + 18}" text-anchor="end">${(most / 1000).toFixed(2)} s</text></svg></figure>`;
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
<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111}figure{margin:1.5rem 0}svg{width:100%;height:auto}svg text{font-size:12px;fill:#4b5563}
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .6rem;border-bottom:1px solid #e5e7eb;text-align:right}th{text-align:left;font-weight:400}.good td:nth-child(4){color:#047857}.bad td:nth-child(4){color:#b91c1c;font-weight:600}
.upstream{color:${COLOURS.upstream}}.ours{color:${COLOURS.ours}}</style></head><body>
<h1>The same pods on two kubelets</h1>
<p>${escape(comparison.date)}, ${comparison.cpus} CPUs, ${escape(versions.join(', '))}. <b class="upstream">Upstream</b> and <b class="ours">ours</b> in one run, interleaved, the order of nodes alternated.</p>
${groups.flatMap((group) => [curve(comparison, group, 'readyMs'), curve(comparison, group, 'goneMs')]).join('\n')}
<table><thead><tr><th scope="col">figure, median over rounds</th><th scope="col">upstream</th><th scope="col">ours</th><th scope="col">ratio</th><th scope="col">unit</th></tr></thead>
<tbody>${rowsOf(comparison).map(tableRow).join('\n')}</tbody></table>
</body></html>
`;
}
