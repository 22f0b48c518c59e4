import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { FakePlace } from '../../scripts/kind/fake-place.ts';
import type { Place } from '../../scripts/kind/place.ts';
import { onlyOn } from './judge.ts';

const nodes = ['k-worker', 'k-worker2'].map((name) => ({ metadata: { name }, spec: {}, status: { nodeInfo: {} } }));

test('other nodes are cordoned, and uncordoned after however long a run', async () => {
  const dir = await mkdtemp(`${tmpdir()}/nodelet-judge-`);
  try {
    await writeFile(`${dir}/docker`, '#!/bin/sh\nprintf "k-worker k worker\\nk-worker2 k worker\\n"\n', { mode: 0o755 });
    const said: string[] = [];
    const say = (args: readonly string[]): Promise<string> => {
      said.push(args.join(' '));
      return Promise.resolve(JSON.stringify({ items: nodes }));
    };
    const fake = new FakePlace();
    const place = {
      ...{ node: fake.node, cluster: fake.cluster, engine: { env: { PATH: `${dir}:/usr/bin:/bin` }, signal: new AbortController().signal } },
      kubectl: say,
      unstoppable: () => {
        said.push('unstoppable from now on');
        return { kubectl: say };
      },
    } as unknown as Place;
    {
      await using _alone = await onlyOn(place, 'k-worker');
      said.push('the run');
    }
    assert.deepEqual(said, ['get nodes --output=json', 'cordon k-worker2', 'the run', 'unstoppable from now on', 'uncordon k-worker2']);
  } finally {
    await rm(dir, { recursive: true });
  }
});
