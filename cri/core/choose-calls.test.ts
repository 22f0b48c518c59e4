import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode, type OpError } from '../../base/errors.ts';
import { choosing, type Choice, type Choosable } from './choose-calls.ts';
import { flatFields, isTextInBytes } from './flat-fields.ts';
import { networkSetup } from './network-setup.ts';
import { momentOf } from './time-range.ts';

const call: Choosable = {
  pod: 'default/web-1',
  container: 'main#2',
  method: 'ContainerStatus',
  outcome: 'NotFound',
  hasFailed: true,
  startMs: 1_000,
  endMs: 1_100,
};

const choices: readonly [choice: Choice, wanted: boolean][] = [
  [{}, true],
  [{ pod: 'default/web-1' }, true],
  [{ pod: 'pod/default/web-1' }, true],
  [{ pod: 'default/web-*' }, true],
  [{ pod: '*/web-1' }, true],
  [{ pod: 'default/web' }, false],
  [{ pod: 'default/web.1' }, false],
  [{ container: 'main' }, true],
  [{ container: 'main#2' }, true],
  [{ container: 'main#1' }, false],
  [{ container: 'mai' }, false],
  [{ method: 'containerstatus' }, true],
  [{ method: 'Version, ContainerStatus' }, true],
  [{ method: 'Version' }, false],
  [{ outcome: 'failed' }, true],
  [{ outcome: 'notfound' }, true],
  [{ outcome: 'ok' }, false],
  [{ slowerThan: 99 }, true],
  [{ slowerThan: 100 }, false],
  [{ pod: 'default/*', outcome: 'ok' }, false],
];

for (const [choice, wanted] of choices) {
  test(`${JSON.stringify(choice)} ${wanted ? 'wants' : 'does not want'} it`, () => assert.equal(choosing(choice)(call), wanted));
}

test('what is about no pod is no pod’s; an open call is slower than nothing', () => {
  assert.equal(choosing({ pod: '*/*' })({ ...call, pod: '' }), false);
  assert.equal(choosing({ slowerThan: 1 })({ ...call, endMs: null }), false);
  assert.throws(
    () => choosing({ pod: 'web' }),
    (error) => hasCode(error, 'invalid'),
  );
});

test('a method or an outcome that there is not is refused, with the nearest that there are', () => {
  assert.throws(
    () => choosing({ method: 'Version,CreateContianer' }),
    (error: unknown) =>
      hasCode(error, 'invalid') &&
      /no method "CreateContianer"/.test((error as OpError).message) &&
      (error as OpError).advice.startsWith('the nearest are CreateContainer, '),
  );
  assert.throws(
    () => choosing({ outcome: 'notfuond' }),
    (error: unknown) => hasCode(error, 'invalid') && (error as OpError).advice.startsWith('the nearest are NotFound, '),
  );
});

test('moments: of day, from the start, and by themselves', () => {
  const start = Date.parse('2026-06-01T23:59:00Z');
  const at = (text: string): string => new Date(momentOf(text, start)).toISOString();
  assert.equal(at('+90s'), '2026-06-02T00:00:30.000Z');
  assert.equal(at('1.5m'), '2026-06-02T00:00:30.000Z');
  assert.equal(at('23:59:30'), '2026-06-01T23:59:30.000Z');
  assert.equal(at('00:01'), '2026-06-02T00:01:00.000Z');
  assert.equal(at('2026-06-03T00:00:00Z'), '2026-06-03T00:00:00.000Z');
  assert.ok(Number.isNaN(momentOf('soon', start)));
});

test('fields of a message, with names that have dots and bytes that are text', () => {
  const message = { config: { labels: { 'io.kubernetes.pod.name': 'web' }, envs: [{ key: 'A', value: 'aGk=' }], tty: true }, stdout: 'aGk=', gone: null };
  const read = (path: string, text: string): string | null => (isTextInBytes(path) ? `text of ${text}` : null);
  assert.deepEqual(
    [...flatFields(message, read)].map(({ path, text }) => `${path}=${text}`),
    ['config.labels."io.kubernetes.pod.name"=web', 'config.envs[0].key=A', 'config.envs[0].value=text of aGk=', 'config.tty=true', 'stdout=text of aGk='],
  );
});

test('how often networks were set up, as containerd tells it', () => {
  const text = `# HELP containerd_cri_sandbox_create_network_seconds time to create the network for a sandbox
# TYPE containerd_cri_sandbox_create_network_seconds histogram
containerd_cri_sandbox_create_network_seconds_bucket{le="0.005"} 0
containerd_cri_sandbox_create_network_seconds_sum 1.25
containerd_cri_sandbox_create_network_seconds_count 4
`;
  assert.deepEqual(networkSetup(text), { count: 4, sumSeconds: 1.25 });
  assert.equal(networkSetup('up 1\n'), null);
});
