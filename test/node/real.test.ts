import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { realProblem } from '../real.ts';
import { eventually, kubectlProblem, setProblem, testSet } from '../set.ts';

const skip = (await setProblem()) ?? (await kubectlProblem()) ?? (await realProblem()) ?? false;

test('agent and netfilter serve a real control plane', { skip, timeout: 300_000 }, async () => {
  await using set = await testSet('real', ['examples/web.yaml', '--control-plane', 'real', '--nodes', '2']);
  const page = await set.k(['exec', 'deploy/web', '--', 'wget', '-q', '-O', '-', 'http://web.default.svc.cluster.local/']);
  // The stand-in's page, or nginx's own where `nodelet image make` has made that image.
  assert.match(page, /It works|Welcome to nginx/);
  await set.k(['logs', 'deploy/web']);
  await set.k(['scale', 'deploy/web', '--replicas=5']);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  await set.k(['delete', 'deploy', 'web']);
  await eventually('the pods are gone', 60_000, async () => ((await set.k(['get', 'pods', '-o', 'name'])) === '' ? true : null));
  const { nodes } = await set.status();
  for (const node of nodes) {
    for (const name of ['agent', 'netfilter']) {
      const log = await readFile(`${node.directory}/log/${name}.log`, 'utf8');
      const refused = log.split('\n').filter((line) => /\b(Forbidden|Invalid|Bad Request|unknown field|is forbidden)\b/i.test(line));
      assert.deepEqual(refused, [], `${node.name} ${name}: the API server refused something`);
    }
  }
});
