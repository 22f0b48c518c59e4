import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../../base/fake-clock.ts';
import { silentLog } from '../../../base/log.ts';
import { seededRng } from '../../../base/rng.ts';
import { Turns } from '../../../base/turns.ts';
import { CsiUnstage, type UnstageOptions } from './unstage.ts';

test('with which SELinux context a volume is there for others: until it is off the node', async () => {
  const clock = createFakeClock();
  const disk = { data: async () => null } as unknown as UnstageOptions['disk'];
  await using unstage = new CsiUnstage({
    clock,
    rng: seededRng(1),
    log: silentLog,
    disk,
    drivers: { find: () => undefined },
    attachments: { hold: () => undefined, release: () => undefined },
    expansions: { forget: () => undefined },
    turns: new Turns(),
  });
  const volume = { driver: 'd', handle: 'h', selinuxContext: 'a:b:c:s0:c1' };
  assert.equal(unstage.contextOf(volume, 'u1'), null, 'nobody has it');
  unstage.uses(volume, 'u1', null);
  unstage.staged(volume);
  assert.equal(unstage.contextOf(volume, 'u1'), null, 'it is its own');
  assert.equal(unstage.contextOf(volume, 'u2'), 'a:b:c:s0:c1');
  unstage.left(volume, 'u1', null);
  assert.equal(unstage.contextOf(volume, 'u2'), 'a:b:c:s0:c1', 'it is still mounted');
  await clock.advance(10);
  assert.equal(unstage.contextOf(volume, 'u2'), null);
});
