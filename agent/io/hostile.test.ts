import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import { createFallbackSys } from '../../base/sys/fallback.ts';
import { readLog } from '../../cri/mod.ts';
import type { ContainerStatus } from '../../proto/cri/types.ts';
import type { Volume } from '../../proto/kube/types.ts';
import { payloadOf, type PayloadInputs } from '../core/volumes-payload.ts';
import { createLastWords } from './files.ts';

/* What a pod may plant where the agent reads with the node's rights: each of these tries to get a file of the node's into the pod's status or logs. */

const secretText = 'the secret of the node';

async function node(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'hostile-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const rootDir = join(folder, 'kubelet');
  const podLogsDir = join(folder, 'pods');
  const words = join(rootDir, 'pods/u1/containers/c');
  const logs = join(podLogsDir, 'ns_p_u1/c');
  for (const path of [words, logs]) await mkdir(path, { recursive: true });
  await mkdir(join(folder, 'etc'));
  await writeFile(join(folder, 'etc/secret'), secretText);
  // As a log line, too, so that a reader of logs would pass it on.
  await writeFile(join(folder, 'etc/log'), `2026-01-01T00:00:00Z stdout F ${secretText}\n`);
  const sys = createFallbackSys({ log: silentLog });
  t.after(() => sys[Symbol.asyncDispose]());
  const lastWords = createLastWords({ sys, rootDir, podLogsDir });
  const status = (hostPath: string, logPath: string): ContainerStatus =>
    ({
      annotations: {
        'io.kubernetes.container.terminationMessagePath': '/dev/termination-log',
        'io.kubernetes.container.terminationMessagePolicy': 'FallbackToLogsOnError',
      },
      exitCode: 1,
      reason: 'Error',
      logPath,
      mounts: [{ containerPath: '/dev/termination-log', hostPath }],
    }) as unknown as ContainerStatus;
  const none = join(logs, 'none.log');
  return { folder, words, logs, podLogsDir, said: (hostPath: string, logPath = none) => lastWords.of(status(hostPath, logPath)) };
}

test('a termination message is read from its own file and from no other', { timeout: 20_000 }, async (t) => {
  const { folder, words, said } = await node(t);
  await writeFile(join(words, 'plain'), 'bye');
  assert.equal(await said(join(words, 'plain')), 'bye');
  await symlink(join(folder, 'etc/secret'), join(words, 'absolute'));
  await symlink('../../../../../etc/secret', join(words, 'relative'));
  await symlink('/proc/self/environ', join(words, 'magic'));
  await symlink(join(folder, 'etc'), join(words, 'folder'));
  execFileSync('mkfifo', [join(words, 'pipe')]);
  await mkdir(join(words, 'directory'));
  const tries = ['absolute', 'relative', 'magic', 'folder/secret', 'pipe', 'directory', '../../../../../etc/secret'].map((name) => join(words, name));
  for (const path of [...tries, join(folder, 'etc/secret')]) {
    const text = await said(path);
    assert.ok(!text.includes(secretText) && !text.includes('PATH='), `${path}: ${text}`);
  }
  await writeFile(join(words, 'long'), `${'a'.repeat(1024 * 1024)}end`);
  const long = await said(join(words, 'long'));
  assert.deepEqual([long.length, long.slice(-3)], [4096, 'end']);
});

test('the end of a log that stands in for a message is the container’s own log', { timeout: 20_000 }, async (t) => {
  const { folder, words, logs, podLogsDir, said } = await node(t);
  await writeFile(join(logs, '0.log'), '2026-01-01T00:00:00Z stderr F last line\n');
  assert.equal(await said(join(words, 'none'), join(logs, '0.log')), 'last line\n');
  const gone = join(logs, 'gone.log');
  assert.equal(
    await said(join(words, 'none'), gone),
    `Error on reading termination message from logs: failed to try resolving symlinks in path "${gone}": lstat ${gone}: no such file or directory`,
  );
  await symlink(join(folder, 'etc/log'), join(logs, '1.log'));
  await symlink(join(folder, 'etc'), join(podLogsDir, 'ns_p_u1/d'));
  for (const path of [join(logs, '1.log'), join(podLogsDir, 'ns_p_u1/d/log'), join(folder, 'etc/log')])
    assert.equal(await said(join(words, 'none'), path), '', path);
});

test('kubectl logs shows no file behind a link, a pipe or a folder that a pod planted', { timeout: 20_000 }, async (t) => {
  const { folder, logs, podLogsDir } = await node(t);
  const read = async (path: string): Promise<string> => {
    let text = '';
    const filter = { tailLines: null, limitBytes: null, sinceMicros: null, timestamps: false, stream: 'All' as const };
    try {
      await readLog(
        { ...filter, clock: realClock, path, root: podLogsDir, follow: false, isRunning: () => false },
        async (piece) => void (text += Buffer.from(piece).toString()),
        AbortSignal.timeout(10_000),
      );
    } catch (error) {
      return `refused: ${(error as { code?: string }).code}`;
    }
    return text;
  };
  await writeFile(join(logs, '0.log'), '2026-01-01T00:00:00Z stdout F mine\n');
  assert.equal(await read(join(logs, '0.log')), 'mine\n');
  await symlink(join(folder, 'etc/log'), join(logs, '1.log'));
  await symlink(join(folder, 'etc'), join(podLogsDir, 'ns_p_u1/d'));
  execFileSync('mkfifo', [join(logs, '2.log')]);
  for (const path of [join(logs, '1.log'), join(podLogsDir, 'ns_p_u1/d/log'), join(logs, '2.log'), join(podLogsDir, '../etc/log'), logs])
    assert.match(await read(path), /^refused: /, path);
});

test('no key of a ConfigMap or Secret, and no path of an item, leads out of its volume', () => {
  const bad = ['../x', '..', '../../../../etc/cron.d/x', '..data', '..2026_01_01', '/etc/passwd', 'a/../../x', 'a/..', ''];
  const object = (data: Record<string, string>) => new Map([['o', { object: { metadata: { name: 'o' }, data } }]]);
  const inputs = (data: Record<string, string>): PayloadInputs => ({
    pod: { metadata: {}, spec: { containers: [] } },
    configMaps: object(data),
    secrets: object(data),
    tokens: new Map(),
    certificates: new Map(),
    trustBundles: { error: 'none' },
    allocatable: {},
  });
  for (const path of bad) {
    const items = [{ key: 'k', path }];
    const volumes: Volume[] = [
      { name: 'v', configMap: { name: 'o' } },
      { name: 'v', secret: { secretName: 'o' } },
      { name: 'v', projected: { sources: [{ configMap: { name: 'o' } }, { secret: { name: 'o' } }] } },
    ];
    for (const volume of volumes) assert.equal(payloadOf(volume, inputs({ [path]: 'aGk=' })).ok, false, `key ${path} of ${JSON.stringify(volume)}`);
    const withItems: Volume[] = [
      { name: 'v', configMap: { name: 'o', items } },
      { name: 'v', secret: { secretName: 'o', items } },
      { name: 'v', projected: { sources: [{ secret: { name: 'o', items } }] } },
      { name: 'v', downwardAPI: { items: [{ path, fieldRef: { fieldPath: 'metadata.name' } }] } },
    ];
    for (const volume of withItems) assert.equal(payloadOf(volume, inputs({ k: 'aGk=' })).ok, false, `path ${path} of ${JSON.stringify(volume)}`);
  }
});
