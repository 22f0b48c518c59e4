import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endOfExec, forwardPorts, readExecMessage, tunnelledProtocols, webSocketProtocols } from './stream-protocols.ts';

test('which form a client asks for', () => {
  const asks = (upgrade: string | undefined, protocols: string): string[] => webSocketProtocols({ upgrade, 'sec-websocket-protocol': protocols });
  assert.deepEqual(asks('WebSocket', 'v5.channel.k8s.io, v4.channel.k8s.io'), ['v5.channel.k8s.io', 'v4.channel.k8s.io']);
  assert.deepEqual(asks('SPDY/3.1', 'v5.channel.k8s.io'), []);
  assert.deepEqual(asks(undefined, 'v5.channel.k8s.io'), []);
  assert.deepEqual(tunnelledProtocols(['v4.channel.k8s.io', 'SPDY/3.1+portforward.k8s.io', 'SPDY/3.1+other']), ['portforward.k8s.io']);
});

test('what a client’s message says', () => {
  const cases: [number[], string][] = [
    [[0, 97], 'data stdin'],
    [[4, 123], 'data resize'],
    [[0], 'nothing'],
    [[], 'nothing'],
    [[1, 97], 'nothing'],
    [[9, 97], 'nothing'],
    [[255, 0], 'endInput'],
    [[255, 4], 'nothing'],
    [[255, 5], 'broken'],
    [[255], 'broken'],
    [[255, 0, 0], 'broken'],
  ];
  for (const [bytes, expected] of cases) {
    const said = readExecMessage(Uint8Array.from(bytes));
    assert.equal(said.kind === 'data' ? `${said.kind} ${said.channel}` : said.kind, expected, JSON.stringify(bytes));
  }
});

test('the end of an exec in upstream’s words', () => {
  const told = { status: 'Failure', reason: 'NonZeroExitCode', details: { causes: [{ reason: 'ExitCode', message: '7' }] } };
  assert.deepEqual(endOfExec(JSON.stringify(told)), {
    metadata: {},
    status: 'Failure',
    message: 'command terminated with non-zero exit code: command terminated with exit code 7',
    reason: 'NonZeroExitCode',
    details: { causes: [{ reason: 'ExitCode', message: '7' }] },
  });
  for (const text of ['', '{"status":"Success"}']) assert.deepEqual(endOfExec(text), { metadata: {}, status: 'Success' });
  const message = (text: string): unknown => (endOfExec(text) as { message: string }).message;
  assert.equal(message('{"status":"Failure","message":"no such file"}'), 'Internal error occurred: no such file');
  assert.match(String(message('boom')), /^Internal error occurred: error stream protocol error: .* in "boom"$/);
  assert.match(String(message('{"status":"Failure","reason":"NonZeroExitCode"}')), /details must be set$/);
  assert.match(String(message('{"status":"?"}')), /unknown error$/);
});

test('ports that are named beforehand', () => {
  assert.deepEqual(forwardPorts(['80', '443,8080']), [80, 443, 8080]);
  for (const asked of [[], [''], ['x'], ['70000'], ['0'], ['80,-1']]) assert.equal(typeof forwardPorts(asked), 'string', String(asked));
});
