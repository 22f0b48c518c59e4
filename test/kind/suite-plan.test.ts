import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jobOf, nodeArguments } from './suite-plan.ts';

test('a node container gets what kind gives one, and the checkout’s packages read-only', () => {
  const words = nodeArguments({ container: 'c', image: 'i', root: '/src', node: 'node-24', assets: '/made', statics: ['/usr/bin/busybox'] });
  assert.equal(words[0], 'run');
  assert.equal(words.at(-1), 'i');
  for (const word of [
    '--privileged',
    '--cgroupns=private',
    '/src/node_modules:/root/nodelet/node_modules:ro',
    '/made:/assets:ro',
    '/usr/bin/busybox:/usr/bin/busybox:ro',
  ])
    assert.ok(words.includes(word), word);
  assert.ok(words.includes('/src/.tools/node-24:/root/nodelet/.tools/node-24:ro'));
});

test('all works are run, and one that fails makes the status 1', () => {
  const script = jobOf(
    [
      { name: 'root', files: ['test/root/a.test.ts', 'test/root/b.test.ts'] },
      { name: 'shutdown', files: [] },
    ],
    'node-24',
  );
  assert.match(script, /--test --test-concurrency=1 --test-reporter=spec test\/root\/a\.test\.ts test\/root\/b\.test\.ts; \} \|\| failed=1/);
  assert.match(script, /systemd-logind && node [^;]*shutdown\.ts --assets=\/assets; \} \|\| failed=1; exit \$failed$/);
});
