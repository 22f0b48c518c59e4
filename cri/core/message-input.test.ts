import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allMethods, messageTypes } from '../shape.ts';
import { emptyMessage, nearest, readInput } from './message-input.ts';

const read = (name: string, value: unknown): Record<string, unknown> => readInput(messageTypes, name, value);
const refusal = (name: string, value: unknown): string => {
  try {
    read(name, value);
  } catch (error) {
    const { message, advice } = error as { message: string; advice: string };
    return `${message} | ${advice}`;
  }
  return 'taken';
};

test('fields by either of their names, enums by name or number, large numbers as text or number', () => {
  assert.deepEqual(read('StopContainerRequest', { container_id: 'a', timeout: 5 }), { containerId: 'a', timeout: '5' });
  assert.deepEqual(read('ContainerStateValue', { state: 1 }), { state: 'CONTAINER_RUNNING' });
  assert.deepEqual(read('ContainerStateValue', { state: 'CONTAINER_EXITED' }), { state: 'CONTAINER_EXITED' });
  assert.deepEqual(read('ExecSyncResponse', { stdout: 'aGk_', exitCode: -1 }), { stdout: 'aGk/', exitCode: -1 });
  assert.deepEqual(read('ContainerConfig', { cdi_devices: [{ name: 'x' }], labels: { a: 'b' }, linux: null }), {
    CDIDevices: [{ name: 'x' }],
    labels: { a: 'b' },
  });
});

test('what a message does not have is named with its place', () => {
  assert.equal(
    refusal('RunPodSandboxRequest', { config: { metdata: {} } }),
    'reading the request: config.metdata is no field of PodSandboxConfig | did you mean metadata?',
  );
  assert.equal(refusal('VersionRequest', { zzzzzzzzzzzz: 1 }), 'reading the request: zzzzzzzzzzzz is no field of VersionRequest | its fields: version');
  assert.equal(
    refusal('ListMetricDescriptorsRequest', { filter: 1 }),
    'reading the request: filter is no field of ListMetricDescriptorsRequest | ListMetricDescriptorsRequest has no fields',
  );
  assert.equal(
    refusal('CreateContainerRequest', { config: { mounts: [{}, { readonly: 'yes' }] } }),
    'reading the request: config.mounts[1].readonly: true or false is expected, not the string "yes" | ',
  );
  assert.match(refusal('ContainerConfig', { labels: { a: 1 } }), /labels\["a"\]: a text is expected, not the number 1/);
  assert.match(refusal('ContainerConfig', { command: 'sh' }), /command: a list is expected, not the string "sh"/);
  assert.match(refusal('StopContainerRequest', { containerId: 'a', container_id: 'b' }), /containerId is said twice/);
  assert.match(refusal('StopContainerRequest', { timeout: 2 ** 60 }), /write large numbers as text/);
  assert.match(refusal('ContainerMetadata', { attempt: -1 }), /-1 does not fit into uint32/);
  assert.match(refusal('ContainerStateValue', { state: 'RUNNING' }), /"RUNNING" is no ContainerState \| it is one of CONTAINER_CREATED, /);
  assert.match(refusal('VersionRequest', []), /VersionRequest is an object, not a list/);
  assert.match(refusal('ExecSyncResponse', { stdout: 'not base64!' }), /bytes as base64/);
});

test('every empty request is a request', () => {
  for (const { requestType } of allMethods()) assert.equal(typeof read(requestType, emptyMessage(messageTypes, requestType)), 'object', requestType);
  assert.deepEqual(emptyMessage(messageTypes, 'StopContainerRequest'), { containerId: '', timeout: '0' });
});

test('the nearest name, when one is near', () => {
  const methods = allMethods().map(({ method }) => method);
  assert.equal(methods.length, 43);
  assert.equal(allMethods().filter(({ responseStream }) => responseStream === true).length, 7);
  assert.equal(nearest('listcontainer', methods), 'ListContainers');
  assert.equal(nearest('Frobnicate', methods), undefined);
});
