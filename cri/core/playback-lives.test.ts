import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lifeOf, type PlayedLife } from './playback-lives.ts';
import type { PlayedContainer } from './playback-world.ts';

const START_MS = 1_000_000;
const ns = (ms: number): bigint => BigInt(Math.round(ms * 1000)) * 1000n;

interface Seen {
  readonly endedMs?: number;
  readonly exitCode?: number;
  readonly reason?: string;
  readonly askedMs?: number;
  readonly tookMs?: number;
  readonly graceMs?: number;
}

function container({ endedMs, exitCode = 0, reason = '', askedMs, tookMs, graceMs = 0 }: Seen): PlayedContainer {
  return {
    id: 'c',
    sandboxId: 's',
    pod: 'default/web',
    name: 'app',
    config: {},
    image: { tag: '', digest: '', id: '' },
    logPath: '',
    createdAtNs: ns(START_MS),
    wasThere: false,
    stateAtFirst: 'CONTAINER_CREATED',
    state: endedMs === undefined ? 'CONTAINER_RUNNING' : 'CONTAINER_EXITED',
    startedAtNs: ns(START_MS),
    finishedAtNs: endedMs === undefined ? 0n : ns(START_MS + endedMs),
    exitCode,
    reason,
    message: '',
    stopAskedMs: askedMs === undefined ? null : START_MS + askedMs,
    stopTookMs: tookMs ?? null,
    stopGraceMs: graceMs,
  };
}

const cases: readonly [string, Seen, PlayedLife][] = [
  ['nobody saw it end', {}, { exit: null, stop: null }],
  ['it ended by itself', { endedMs: 812.5, exitCode: 3 }, { exit: { afterMs: 812.5, exitCode: 3, oomKilled: false }, stop: null }],
  [
    'it ended by itself, and was stopped afterwards',
    { endedMs: 500, exitCode: 137, reason: 'OOMKilled', askedMs: 900, tookMs: 2 },
    { exit: { afterMs: 500, exitCode: 137, oomKilled: true }, stop: null },
  ],
  [
    'it ended on the stop signal',
    { endedMs: 5300, exitCode: 9, askedMs: 5000, tookMs: 310, graceMs: 30_000 },
    { exit: null, stop: { afterMs: 300, exitCode: 9 } },
  ],
  ['only the kill ended it', { endedMs: 7010, exitCode: 137, askedMs: 5000, tookMs: 2050, graceMs: 2000 }, { exit: null, stop: 'ignore' }],
  ['it was removed before anybody asked how it ended', { askedMs: 5000, tookMs: 250, graceMs: 30_000 }, { exit: null, stop: { afterMs: 250, exitCode: 143 } }],
  ['it was removed, and the stop took all its grace', { askedMs: 5000, tookMs: 2100, graceMs: 2000 }, { exit: null, stop: 'ignore' }],
  ['a stop that never answered', { askedMs: 5000, graceMs: 2000 }, { exit: null, stop: null }],
];

for (const [name, seen, life] of cases) test(`life: ${name}`, () => assert.deepEqual(lifeOf(container(seen)), life));
