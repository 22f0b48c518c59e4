import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { MessageWriter, NLMSG_DONE } from '../../base/netlink.ts';
import { errnoError } from '../../base/sys/errno.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { createKernel } from './kernel.ts';

/** The end of a dump, without an error. */
function done(): Uint8Array {
  const writer = new MessageWriter();
  writer.end(writer.open(NLMSG_DONE, 0, 1, new Uint8Array(4)));
  return writer.finish();
}

test('a list that was cut off by a deadline is asked for again, and never taken for whole', async () => {
  const sys = createFakeSys();
  const kernel = createKernel(sys);
  let asked = 0;
  const answers: Record<string, () => Uint8Array[]> = {
    nothing: () => [],
    timeout: () => {
      throw errnoError('netlink', 'ETIMEDOUT');
    },
  };
  for (const [what, answer] of Object.entries(answers)) {
    asked = 0;
    sys.onNetlink = () => (++asked === 1 ? answer() : [done()]);
    assert.deepEqual([await kernel.links(null), asked], [[], 2], what);
    asked = 0;
    assert.deepEqual([await kernel.link(null, 'eth0'), asked], [null, 2], what);
    asked = 0;
    sys.onNetlink = () => (asked++, answer());
    await assert.rejects(kernel.links(null), (error) => hasCode(error, 'deadline'), what);
    await assert.rejects(kernel.link(null, 'eth0'), (error) => hasCode(error, 'deadline'), what);
    assert.equal(asked, 4, what);
  }
});
