import { FakeHost } from '../../base/fake-host.ts';
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { diff, type DiffOptions } from '../../cri/diff.ts';
import { report } from '../../cri/report.ts';
import type { Host } from '../../base/host.ts';

/*
 * What docs/cri.md shows of recordings/, which are of real nodes: pods of upstream's kubelet and of our agent on
 * containerd 2.4, made by `nodelet contract record --calls`.
 */

const ROOT = new URL('../../', import.meta.url).pathname;
const RECORDINGS = 'test/cri/recordings';
const [UPSTREAM, OURS] = [`${RECORDINGS}/upstream.crirec`, `${RECORDINGS}/ours.crirec`];
process.chdir(ROOT);

async function said(run: (host: Host) => Promise<number>): Promise<{ code: number; out: string }> {
  const host = new FakeHost();
  return { code: await run(host), out: host.out };
}

const options: DiffOptions = { all: false, ignore: [], map: [], update: false, json: false };
const compared = (more: Partial<DiffOptions>): Promise<{ code: number; out: string }> => said((host) => diff(host, UPSTREAM, OURS, { ...options, ...more }));

async function assertInDocs(command: string, out: string): Promise<void> {
  const docs = await readFile('docs/cri.md', 'utf8');
  assert.ok(docs.includes(`$ ${command}\n`), `docs/cri.md has no: ${command}`);
  const lines = out
    .trimEnd()
    .split('\n')
    .map((line) => line.trimEnd());
  assert.ok(docs.includes(`${lines.join('\n')}\n`), `docs/cri.md does not show what the command answers now:\n${lines.join('\n')}`);
}

test('upstream’s kubelet and our agent differ in what has a reason, and in nothing else', async () => {
  const { code, out } = await compared({ expect: `${RECORDINGS}/known.yaml` });
  assert.equal(code, 0, out);
  await assertInDocs(`./nodelet cri diff ${UPSTREAM} ${OURS} --expect ${RECORDINGS}/known.yaml`, out);
});

for (const pod of ['plain', 'sidecar', 'crash'])
  test(`the docs show both lives of the pod ${pod}`, async () => {
    const { out } = await compared({ pod: `contract/${pod}` });
    await assertInDocs(`./nodelet cri diff ${UPSTREAM} ${OURS} --pod contract/${pod}`, out);
  });

test('the docs show a sequence diagram of a pod of an upstream kubelet', async () => {
  const { out } = await said((host) =>
    report(host, UPSTREAM, { html: false, mermaid: true, perfetto: false, otlp: false, json: false, force: false, pod: 'contract/sidecar' }),
  );
  assert.match(out, /StopContainer main.*[^]*StopContainer beside/, 'the sidecar is stopped after the container that it is for');
  await assertInDocs(`./nodelet cri report ${UPSTREAM} --mermaid --pod contract/sidecar`, out);
});
