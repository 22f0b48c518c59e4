import assert from 'node:assert/strict';
import { test } from 'node:test';
import { admissionActs } from './policies.ts';

const OLD = 'registry.k8s.io/e2e-test-images/agnhost:2.45';
const MADE = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1';

test('the suite waits until the admission policy changes pods, whatever the API server says before', async () => {
  const answers = ['Error from server (Forbidden): no service account\n', OLD, MADE, MADE];
  const asked: string[] = [];
  const cluster = {
    async tryKubectl(args: readonly string[]): Promise<string> {
      asked.push(args.join(' '));
      return answers.shift() ?? MADE;
    },
  };
  await admissionActs(cluster, 'pod.json', { tries: 5, pauseMs: 1 });
  assert.equal(asked.length, 3);
  assert.ok(asked.every((one) => one.startsWith('create --dry-run=server -f pod.json')));
});

test('an admission policy that changes nothing ends the suite, with what the API server said last', async () => {
  const cluster = { tryKubectl: async () => OLD };
  await assert.rejects(admissionActs(cluster, 'pod.json', { tries: 3, pauseMs: 1 }), (error: Error) => {
    assert.match(error.message, /agnhost:2\.45/);
    return true;
  });
});
