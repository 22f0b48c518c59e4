import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { findAssets } from '../assets/find.ts';
import { callers, startBoth, type Asked, type TwoKubelets } from './kubelet-api-world.ts';

/* Every path of the kubelet's API, asked of upstream's kubelet and of ours by the same callers: who is refused, and how. */

const kubelet = (await findAssets({ env: process.env })).path('kubelet');
const skip = kubelet === null ? 'there is no kubelet: nodelet assets build' : process.getuid?.() !== 0 ? 'the kubelet needs root' : false;
let both: TwoKubelets;
let folder = '';
before(async () => {
  if (skip !== false || kubelet === null) return;
  folder = await mkdtemp(join(tmpdir(), 'kubelet-api-'));
  both = await startBoth(folder, kubelet);
});
after(async () => {
  await both?.[Symbol.asyncDispose]();
  if (folder !== '') await rm(folder, { recursive: true, force: true });
});

const pages = [
  ...['/', '/pods', '/pods/', '/pods/x', '/runningpods', '/runningpods/', '/configz', '/configz/', '/nothing', '/allocatedPods'],
  ...[
    '/healthz',
    '/healthz/',
    '/healthz/ping',
    '/healthz/log',
    '/healthz/syncloop',
    '/healthz/x',
    '/healthz?verbose',
    '/healthz?verbose&exclude=ping&exclude=x',
  ],
  ...[
    '/metrics',
    '/metrics/',
    '/metrics/cadvisor',
    '/metrics/resource',
    '/metrics/probes',
    '/metrics/slis',
    '/metrics/x',
    '/metricsx',
    '/Metrics',
    '/%6detrics',
  ],
  ...['/stats', '/stats/', '/stats/x', '/logs', '/logs/', '/logs/none', '/logs/../etc/passwd', '/logs/%2e%2e/etc/passwd', '//metrics', '/metrics/../pods'],
  ...[
    '/debug',
    '/debug/flags',
    '/debug/flags/v',
    '/debug/pprof/',
    '/debug/pprof',
    '/flagz',
    '/statusz',
    '/checkpoint',
    '/run',
    '/exec',
    '/attach',
    '/portForward',
  ],
];
const ofPods = [
  ...[
    '/exec/ns/p-n1/c',
    '/exec/ns/p-n1/c?command=ls&output=1',
    '/exec/ns/q/c?command=ls&output=1',
    '/exec/ns/p-n1/x?command=ls&output=1',
    '/exec/ns/p-n1/c?command=ls',
  ],
  ...[
    '/exec/ns/p-n1/c?output=1',
    '/exec/ns/p-n1/wrong/c?command=ls&output=1',
    '/exec/a/b',
    '/attach/ns/p-n1/c?output=1',
    '/attach/ns/p-n1/x?output=1',
    '/attach/ns/q/c?output=1',
  ],
  ...['/portForward/ns/p-n1', '/portForward/ns/q', '/portForward/ns/p-n1/wrong', '/run/ns/q/c', '/checkpoint/ns/q/c', '/checkpoint/ns/p-n1/x'],
  ...[
    '/containerLogs/ns/p-n1/x',
    '/containerLogs/ns/q/c',
    '/containerLogs/ns/p-n1/c?tailLines=-1',
    '/containerLogs/ns/p-n1/c?tailLines=x',
    '/containerLogs/ns/p-n1',
  ],
  ...[
    '/containerLogs/ns/p-n1/c?previous=true',
    '/containerLogs/ns/p-n1/c?stream=Stdout',
    '/containerLogs/ns/p-n1/c?stream=Other',
    '/containerLogs/ns/p-n1/c?sinceSeconds=0',
  ],
];

/** What must be equal: the status, and of a refusal all words and what else is allowed. Where a connection failed, each language has its own words. */
function told({ status, text, headers }: Asked): unknown {
  const words = text.replace(/(error dialing backend): [^"]*/s, '$1');
  return status < 300 ? status : [status, words, headers['allow'] ?? '', headers['location'] ?? ''];
}

async function same(name: string, method: string, path: string, headers: Readonly<Record<string, string>> = {}): Promise<void> {
  const caller = callers[name] ?? {};
  const [upstream, ours] = await Promise.all([both.ask('upstream', method, path, caller, headers), both.ask('ours', method, path, caller, headers)]);
  assert.deepEqual(told(ours), told(upstream), `${method} ${path} by ${name}`);
}

for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']) {
  test(`${method}: paths, redirects, what is allowed and what is not there`, { skip }, async () => {
    // The level of the log is not to be changed, and a checkpoint not to be made.
    for (const path of [...pages, ...ofPods]) await same('admin', method, path);
  });
}

for (const name of Object.keys(callers).filter((each) => each !== 'admin')) {
  test(`${name}: refused as upstream refuses`, { skip }, async () => {
    for (const method of ['GET', 'POST', 'PUT', 'DELETE']) for (const path of [...pages, ...ofPods]) await same(name, method, path);
  });
}

test('upgrades are refused as upstream refuses them', { skip }, async () => {
  const socket = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' };
  const forms: Readonly<Record<string, string>>[] = [
    { connection: 'Upgrade', upgrade: 'SPDY/3.1', 'x-stream-protocol-version': 'v4.channel.k8s.io' },
    ...['v5.channel.k8s.io', 'v4.channel.k8s.io', 'SPDY/3.1+portforward.k8s.io'].map((protocol) => ({ ...socket, 'sec-websocket-protocol': protocol })),
  ];
  const paths = [
    '/exec/ns/q/c?command=ls&output=1',
    '/exec/ns/p-n1/c?command=ls',
    '/exec/ns/p-n1/x?command=ls&output=1',
    '/attach/ns/q/c?output=1',
    '/portForward/ns/q',
    '/pods',
    '/nothing',
  ];
  for (const headers of forms) for (const name of Object.keys(callers)) for (const path of paths) await same(name, 'GET', path, headers);
  for (const query of ['', '?port=', '?port=x', '?port=0', '?port=70000', '?port=1,x'])
    await same('admin', 'GET', `/portForward/ns/p-n1${query}`, { ...socket, 'sec-websocket-protocol': 'v4.channel.k8s.io' });
});

test('/statusz tells the same things in the same order, as text and as JSON', { skip }, async () => {
  const json = { accept: 'application/json;g=config.k8s.io;v=v1beta1;as=Statusz' };
  const ask = async (which: 'upstream' | 'ours', headers = {}): Promise<string> =>
    (await both.ask(which, 'GET', '/statusz', callers['admin'] ?? {}, headers)).text;
  // Upstream draws what stands between a name and its value, so that nobody parses the page.
  const form = (text: string): string =>
    text
      .replaceAll(/^(Started|Up|Go version|Binary version|Emulation version|Paths)(?:: ?|=| )\s*/gm, '$1: ')
      .replace(/^(Started: )\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \w+ \d{4}$/m, '$1WHEN')
      .replace(/^(Up: )\d+ hr \d\d min \d\d sec$/m, '$1LONG')
      .replaceAll(/^(Go version|Binary version): .*$/gm, '$1: ?');
  assert.equal(form(await ask('ours')), form(await ask('upstream')));
  const own = { startTime: '', uptimeSeconds: 0, goVersion: '', binaryVersion: '' };
  const [ours, upstream] = await Promise.all([ask('ours', json), ask('upstream', json)]);
  assert.deepEqual({ ...(JSON.parse(ours) as object), ...own }, { ...(JSON.parse(upstream) as object), ...own });
});
