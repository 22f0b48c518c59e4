import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { execa } from 'execa';
import { findAssets } from '../assets/find.ts';
import { setProblem } from '../set.ts';
import type { Answer } from './conduct.ts';
import type { Scoreboard } from './scoreboard.ts';

const root = new URL('../..', import.meta.url).pathname;
const NAME = 'slice';
const UP_MS = 240_000;
const RUN_MS = 600_000;

const wanted = (await readFile(new URL('slice.txt', import.meta.url), 'utf8')).split('\n').filter((line) => line !== '' && !line.startsWith('#'));

/** Why the slice cannot run here, or null: it builds nothing. */
async function problem(): Promise<string | null> {
  const machine = await setProblem();
  if (machine !== null) return machine;
  const assets = await findAssets({ env: process.env });
  for (const name of ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kubectl', 'e2e.test', 'ginkgo', 'runc', 'agnhost'] as const) {
    if (assets.path(name) === null) return `needs ${name}: nodelet assets makes it`;
  }
  return assets.dir('containerd-2.4') === null ? 'needs containerd 2.4: nodelet assets makes it' : null;
}

test('the slice names specs that are judged', async () => {
  const { tests } = JSON.parse(await readFile(new URL('scoreboard.json', import.meta.url), 'utf8')) as Scoreboard;
  assert.deepEqual(
    wanted.filter((name) => !Object.hasOwn(tests, name)),
    [],
  );
  assert.equal(new Set(wanted).size, wanted.length);
});

const skip = await problem();

test('Kubernetes’ own specs, a fixed slice, on a node of ours', { skip: skip ?? false }, async (t) => {
  const dir = await mkdtemp(`${tmpdir()}/nodelet-slice-`);
  const nodelet = (args: readonly string[], timeout: number) => execa(`${root}nodelet`, args, { reject: false, all: true, timeout });
  try {
    await nodelet(['cluster', 'down', '--name', NAME], UP_MS);
    const up = await nodelet(['cluster', 'up', '--name', NAME, '--agent', 'ours', '--audit'], UP_MS);
    assert.equal(up.exitCode, 0, up.all);
    const ran = await nodelet(
      ['conformance', '--name', NAME, '--names', `${root}test/conformance/slice.txt`, '--parallel', '4', '--no-score', '--json', `${dir}/answer.json`],
      RUN_MS,
    );
    const answer = JSON.parse(await readFile(`${dir}/answer.json`, 'utf8').catch(() => 'null')) as Answer | null;
    assert.ok(answer !== null, ran.all);
    for (const { name, result, seconds, reason } of answer.results) t.diagnostic(`${result} ${seconds} s ${name}${reason === '' ? '' : `: ${reason}`}`);
    t.diagnostic(
      `${answer.passed} of ${wanted.length} specs of e2e.test passed in ${answer.seconds} s on ${Object.entries(answer.versions)
        .map(([key, value]) => `${key} ${value}`)
        .join(', ')}`,
    );
    assert.equal(ran.exitCode, 0, ran.all);
    assert.equal(answer.passed, wanted.length);
  } finally {
    await nodelet(['cluster', 'down', '--name', NAME], UP_MS);
    await rm(dir, { recursive: true, force: true });
  }
});
