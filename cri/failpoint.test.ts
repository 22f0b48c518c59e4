import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BugError } from '../base/assert.ts';
import { hasCode } from '../base/errors.ts';
import { createFakeClock } from '../base/fake-clock.ts';
import { createCriClient } from './client.ts';
import { RpcError } from './errors.ts';
import { failpoints } from './failpoint.ts';
import { FakeRuntime } from './fake.ts';
import { compose } from './transport.ts';

async function outcomes(text: string, calls: number): Promise<string[]> {
  const clock = createFakeClock();
  const fake = new FakeRuntime({ clock });
  const client = createCriClient(compose(fake, failpoints(clock, { Version: text })));
  const seen: string[] = [];
  for (let count = 0; count < calls; count++) {
    const reached = fake.calls.length;
    const call = client.runtime.version({}).then(
      () => 'ok',
      (error: unknown) => (error instanceof RpcError ? `${error.status} ${error.description}` : (error as Error).name),
    );
    await clock.advance(1000);
    seen.push(`${await call}${fake.calls.length > reached ? '' : ' unreached'}`);
  }
  return seen;
}

test('terms follow one another, each for as many calls as it says', async () => {
  assert.deepEqual(await outcomes('2*error(unavailable)->off->error(not-found: gone)', 5), [
    'Unavailable failpoint unreached',
    'Unavailable failpoint unreached',
    'ok',
    'NotFound gone unreached',
    'ok',
  ]);
});

test('an error without a status is Unknown with the words given', async () => {
  assert.deepEqual(await outcomes('1*error(disk on fire)', 2), ['Unknown disk on fire unreached', 'ok']);
});

test('after loses the answer of a call that was done', async () => {
  assert.deepEqual(await outcomes('after(deadline-exceeded)', 2), ['DeadlineExceeded failpoint', 'ok']);
});

test('delay holds a call back, and lets it pass', async () => {
  const clock = createFakeClock();
  const fake = new FakeRuntime({ clock });
  const client = createCriClient(compose(fake, failpoints(clock, { '*': 'delay(300)' })));
  const call = client.runtime.version({});
  await clock.advance(299);
  assert.equal(fake.calls.length, 0);
  await clock.advance(1);
  await call;
  assert.equal(fake.calls.length, 1);
});

test('panic is a bug of this program, as it would be of containerd', async () => {
  const clock = createFakeClock();
  const points = failpoints(clock);
  const client = createCriClient(compose(new FakeRuntime({ clock }), points));
  points.set('Version', 'panic(boom)');
  await assert.rejects(client.runtime.version({}), BugError);
  points.set('Version', '');
  await client.runtime.version({});
});

for (const text of ['2*', 'eror(x)', 'delay(x)', 'delay()', '', '1*error(a)->']) {
  test(`"${text}" is refused`, () => {
    assert.throws(
      () => failpoints(createFakeClock(), { Version: text }),
      (error) => hasCode(error, 'invalid'),
    );
  });
}
