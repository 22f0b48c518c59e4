import assert from 'node:assert/strict';
import { test } from 'node:test';
import { envFileValue } from './env-file.ts';
import { authsFor, configEntries, secretEntries } from './pull-secrets.ts';

const auth = (text: string): string => Buffer.from(text).toString('base64');

test('credentials match by host, port and path, the longest path first', () => {
  const entries = configEntries(
    JSON.stringify({
      auths: {
        'https://index.docker.io/v1/': { auth: auth('d:1') },
        'reg.example:5000': { auth: auth('r:2') },
        'reg.example:5000/team': { auth: auth('t:3') },
        '*.cloud.example': { username: 'c', password: '4' },
      },
    }),
  );
  const users = (repository: string): string[] => authsFor(entries, repository).map(({ auth: each }) => `${each.username}:${each.password}`);
  assert.deepEqual(users('docker.io/library/busybox'), ['d:1']);
  assert.deepEqual(users('reg.example:5000/team/app'), ['t:3', 'r:2']);
  assert.deepEqual(users('reg.example/team/app'), []);
  assert.deepEqual(users('eu.cloud.example/x'), ['c:4']);
  assert.deepEqual(users('a.eu.cloud.example/x'), []);
});

test('both kinds of Secret are read, and nonsense is none', () => {
  const modern = {
    metadata: {},
    type: 'kubernetes.io/dockerconfigjson',
    data: { '.dockerconfigjson': auth(JSON.stringify({ auths: { 'a.example': { auth: auth('u:p') } } })) },
  };
  const old = { metadata: {}, type: 'kubernetes.io/dockercfg', data: { '.dockercfg': auth(JSON.stringify({ 'b.example': { auth: auth('u:p') } })) } };
  assert.deepEqual(
    [modern, old].flatMap(secretEntries).map((entry) => entry.pattern),
    ['a.example', 'b.example'],
  );
  assert.deepEqual(configEntries('no json'), []);
});

test('environment files hold literal values in single quotes', () => {
  const text = "# settings\n  A='one'\n\nB='two\nlines' # why\nC= 'x'\n";
  assert.deepEqual(
    ['A', 'B', 'C', 'D'].map((name) => envFileValue(text, name)),
    ['one', 'two\nlines', '', null].map((value) => ({ ok: true, value })),
  );
  assert.deepEqual(envFileValue('A=1\n', 'A'), { ok: false, line: 1, problem: 'value must be enclosed in single quotes' });
  assert.deepEqual(envFileValue("A ='1'\n", 'A'), { ok: false, line: 1, problem: "whitespace before '=' is not allowed" });
  assert.deepEqual(envFileValue("A='1\n", 'A'), { ok: false, line: 1, problem: 'unclosed single quote' });
});
