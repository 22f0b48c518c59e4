import { durationText } from './duration-text.ts';
import type { ReportFacts } from './report-facts.ts';
import { isLook, startedInMs, type FailureRow, type MethodRow, type ReportCall, type ReportPod } from './report-calls.ts';
import { escapeHtml as esc, podSvg } from './report-svg.ts';
import { hasFailed } from './timeline.ts';

/** Of more pods only those with failures are open when the page is. */
const MAX_OPEN = 30;
/** Calls told one by one below a pod's picture. */
const MAX_LISTED = 400;

const STYLE = `
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5c6776;--line:#d9dee5;--back:#fff;--card:#f5f7f9;--make:#2f6fd0;--end:#7a5bb8;--image:#b7791f;--run:#0f8a7e;--read:#93a0b0;--watch:#b4bdc8;--failed:#cf2a2a;--cut:#8a8f98;--open:#d07a2f}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa5b3;--line:#343c48;--back:#14181e;--card:#1d232b;--make:#5b95ee;--end:#a58be0;--image:#dba345;--run:#3fb8ab;--read:#6c7888;--watch:#4a5462;--failed:#f06a6a;--cut:#7d838c;--open:#e79a56}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:28px 24px 80px;background:var(--back);color:var(--ink);font:14px/1.5 system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1{font-size:22px;margin:0 0 2px}h2{font-size:17px;margin:34px 0 10px}.soft{color:var(--soft)}p{margin:4px 0}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0}.card{background:var(--card);border-radius:8px;padding:10px 16px;min-width:120px}.card b{display:block;font-size:20px;font-weight:600}
table{border-collapse:collapse;width:100%}th{text-align:left;color:var(--soft);font-weight:500;border-bottom:1px solid var(--line);padding:4px 10px 4px 0}td{padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.bad{color:var(--failed);font-weight:600}.share{width:160px}.share i{display:block;height:9px;margin-top:6px;border-radius:2px;background:var(--make)}
.message{font:12.5px/1.45 ui-monospace,"Liberation Mono",monospace;white-space:pre-wrap;overflow-wrap:anywhere;min-width:380px}
details{border:1px solid var(--line);border-radius:8px;margin:8px 0;content-visibility:auto;contain-intrinsic-size:auto 44px}details details{border:0;margin:0}summary{cursor:pointer;padding:8px 14px}summary b{margin-right:12px}summary span{margin-right:14px;color:var(--soft)}.inside{padding:2px 14px 10px}
pre{font:12.5px/1.5 ui-monospace,"Liberation Mono",monospace;overflow-x:auto;margin:4px 0 8px}svg{width:100%;height:auto;display:block}
svg text{font-size:11px;fill:var(--ink)}svg .row{text-anchor:end;font-size:12px}svg .time{fill:var(--soft)}svg .idle{fill:var(--soft);text-anchor:middle}svg .in{fill:#fff;pointer-events:none}.grid{stroke:var(--line)}.gap{fill:var(--card)}.looks{stroke:var(--read);stroke-width:1}
${['make', 'end', 'image', 'run', 'read', 'watch', 'failed', 'cut', 'open'].map((tone) => `rect.${tone},i.${tone}{fill:var(--${tone});background:var(--${tone})}`).join('')}
.legend{display:flex;flex-wrap:wrap;gap:16px;color:var(--soft)}.legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;vertical-align:-1px}
`;

const LEGEND = [
  ['make', 'makes or changes'],
  ['end', 'stops or removes'],
  ['image', 'images'],
  ['run', 'runs a command'],
  ['read', 'looks'],
  ['failed', 'failed'],
  ['cut', 'given up by the caller'],
  ['open', 'had not ended'],
] as const;

function methodTable(rows: readonly MethodRow[]): string {
  const most = Math.max(1, ...rows.map(({ totalMs }) => totalMs));
  const body = rows.map(
    ({ method, kind, calls, failed, p50Ms, p99Ms, longestMs, totalMs }) =>
      `<tr><td>${esc(method)}</td><td class="n">${calls}</td><td class="n${failed > 0 ? ' bad' : ''}">${failed}</td>` +
      (totalMs === 0
        ? '<td class="n soft" colspan="4">lasts as long as somebody listens</td><td></td>'
        : [p50Ms, p99Ms, longestMs, totalMs].map((ms) => `<td class="n">${durationText(ms)}</td>`).join('') +
          `<td class="share"><i class="${kind}" style="width:${((100 * totalMs) / most).toFixed(1)}%"></i></td>`) +
      '</tr>',
  );
  return `<table><thead><tr><th>method</th><th class="n">calls</th><th class="n">failed</th><th class="n">half within</th><th class="n">99 % within</th><th class="n">longest</th><th class="n">together</th><th></th></tr></thead><tbody>${body.join('')}</tbody></table>`;
}

function failureTable(rows: readonly FailureRow[], zeroMs: number): string {
  const body = rows.map(
    ({ method, outcome, message, count, pod, container, startMs }) =>
      `<tr><td class="n">+${durationText(startMs - zeroMs)}</td><td>${esc(method)}</td><td>${esc(pod)}${container === '' ? '' : ` <span class="soft">${esc(container)}</span>`}</td><td class="n">${count}</td><td><span class="bad">${esc(outcome)}</span></td><td class="message">${esc(message)}</td></tr>`,
  );
  return `<table><thead><tr><th class="n">first at</th><th>method</th><th>pod</th><th class="n">times</th><th>status</th><th>message</th></tr></thead><tbody>${body.join('')}</tbody></table>`;
}

function listed(calls: readonly ReportCall[], zeroMs: number): string {
  const changes = calls.filter((call) => !isLook(call.method) || hasFailed(call.outcome));
  const lines = changes.slice(0, MAX_LISTED).map((call) => {
    const took = call.endMs === null ? 'open' : durationText(call.endMs - call.startMs);
    const what = [call.container, call.detail || call.other].filter((part) => part !== '').join(' ');
    const end = [call.outcome, call.message].filter((part) => part !== '').join(': ');
    return esc(`${`+${durationText(call.startMs - zeroMs)}`.padStart(12)} ${took.padStart(9)}  ${call.method.padEnd(18)} ${what}  ${end}`);
  });
  if (changes.length > MAX_LISTED) lines.push(`… and ${changes.length - MAX_LISTED} more`);
  return `<details><summary class="soft">${changes.length} calls one by one</summary><pre>${lines.join('\n')}</pre></details>`;
}

function podSection(pod: ReportPod, lastMs: number, open: boolean): string {
  const { calls, failed } = pod;
  const started = startedInMs(pod);
  const facts = [
    `${calls.length} calls`,
    ...(started === null ? [] : [`containers started in ${durationText(started)}`]),
    ...(failed === 0 ? [] : [`<span class="bad">${failed} failed</span>`]),
  ];
  const name = pod.pod === null ? 'the node' : pod.pod.key;
  return `<details${open ? ' open' : ''}><summary><b>${esc(name)}</b><span>${facts.join(' · ')}</span></summary><div class="inside">${podSvg(pod, lastMs)}${listed(calls, calls[0]?.startMs ?? 0)}</div></details>\n`;
}

/** One page, in pieces: nothing is loaded from elsewhere, and it holds no script. */
export function* htmlOf(facts: ReportFacts): Generator<string> {
  const { name, pods, methods, failures, firstMs, lastMs } = facts;
  const ofPods = pods.filter(({ pod }) => pod !== null);
  yield `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"><title>${esc(name)}</title><style>${STYLE}</style></head><body>\n`;
  yield `<h1>${esc(name)}</h1><p class="soft">${facts.recordings.map((each) => esc(`${each.startedAt}, ${each.recorder}, ${each.upstream}`)).join('<br>')}</p>`;
  const cards: [string, string][] = [
    [String(ofPods.length), ofPods.length === 1 ? 'pod' : 'pods'],
    [String(facts.calls), 'calls'],
    [String(facts.failed), 'failed'],
    [durationText(Math.max(0, lastMs - firstMs)), 'recorded'],
  ];
  yield `<div class="cards">${cards.map(([value, what]) => `<div class="card"><b${what === 'failed' && value !== '0' ? ' class="bad"' : ''}>${value}</b>${what}</div>`).join('')}</div>`;
  for (const note of facts.notes) yield `<p class="bad">${esc(note)}</p>`;
  yield `<h2>Methods</h2>${methodTable(methods)}`;
  if (failures.length > 0) yield `<h2>Failures</h2>${failureTable(failures, firstMs)}`;
  yield `<h2>Pods</h2><p class="legend">${LEGEND.map(([tone, text]) => `<span><i class="${tone}"></i>${text}</span>`).join('')}</p><p class="soft">Times when nothing was done are drawn short, with how long they were. Point at a bar to see the call.</p>\n`;
  for (const pod of ofPods) yield podSection(pod, lastMs, ofPods.length <= MAX_OPEN || (pod.failed > 0 && failures.length <= MAX_OPEN));
  for (const pod of pods) if (pod.pod === null) yield podSection(pod, lastMs, false);
  yield '</body></html>\n';
}
