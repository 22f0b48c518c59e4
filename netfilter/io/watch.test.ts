import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { FakeApi } from '../fake.ts';
import { startWatching } from './watch.ts';

test('what is heard before anybody listens is told in its order, and what comes later at once', async () => {
  const fake = new FakeApi();
  const service = (name: string): void => fake.put('services', { kind: 'Service', metadata: { namespace: 'lab', name }, spec: {} } as never);
  service('a');
  const watching = startWatching(fake.api, 'node-a', silentLog, new AbortController().signal);
  await new Promise((resolve) => setImmediate(resolve));
  service('b');
  const heard: string[] = [];
  const ended = watching.listen({
    services: (change, services) => heard.push(`${change} ${services.map(({ metadata }) => metadata.name).join(' ')}`),
    slices: () => {},
    node: () => {},
    serviceCIDRs: () => {},
  });
  assert.deepEqual(heard, ['all a', 'one b']);
  service('c');
  assert.deepEqual(heard, ['all a', 'one b', 'one c']);
  watching[Symbol.dispose]();
  await ended;
});
