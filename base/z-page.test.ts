import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zPageAnswer, type ZPage } from './z-page.ts';

const page: ZPage = { kind: 'Flagz', text: () => 'v=2\n', object: () => ({ kind: 'Flagz', apiVersion: 'config.k8s.io/v1beta1', flags: { v: '2' } }) };
const v1beta1 = 'g=config.k8s.io;v=v1beta1;as=Flagz';

test('the form of a z-page is the dearest of those asked for, as upstream’s', async () => {
  const cases: [string, string][] = [
    ['', 'text/plain; charset=utf-8'],
    ['*/*', 'text/plain; charset=utf-8'],
    ['text/plain', 'text/plain; charset=utf-8'],
    ['application/json,text/plain', 'text/plain; charset=utf-8'],
    [`text/plain,application/json;${v1beta1}`, 'text/plain; charset=utf-8'],
    [`text/plain;q=0.5,application/json;${v1beta1}`, `application/json;${v1beta1}`],
    [`application/json;as=Flagz;v=v1beta1;g=config.k8s.io,text/plain`, `application/json;${v1beta1}`],
    [`application/*;${v1beta1}`, `application/json;${v1beta1}`],
    [`application/yaml;${v1beta1}`, `application/yaml;${v1beta1}`],
  ];
  for (const [accept, type] of cases) {
    const { status, headers } = await zPageAnswer(accept, page);
    assert.deepEqual([status, headers], [200, { 'content-type': type }], accept);
  }
});

test('structured as JSON and as YAML, and in the version that is on its way out', async () => {
  assert.equal((await zPageAnswer(`application/json;${v1beta1}`, page)).body, '{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","flags":{"v":"2"}}\n');
  assert.equal((await zPageAnswer(`application/yaml;${v1beta1}`, page)).body, `kind: Flagz\napiVersion: config.k8s.io/v1beta1\nflags:\n  v: '2'\n`);
  const old = await zPageAnswer('application/json;g=config.k8s.io;v=v1alpha1;as=Flagz', page);
  assert.equal(old.headers['warning'], '299 - "This version of the flagz endpoint is deprecated. Please use a newer version."');
  assert.match(old.body, /"apiVersion":"config.k8s.io\/v1alpha1"/);
});

test('what is not served is refused with what is, in the form that comes nearest', async () => {
  const cases: [string, string][] = [
    ['application/json', 'application/json'],
    ['application/*', 'application/json'],
    ['image/png', 'application/json'],
    ['application/json;g=config.k8s.io;v=v1beta1', 'application/json'],
    ['application/json;g=config.k8s.io;v=v1beta1;as=Statusz', 'application/json'],
    ['application/json;g=config.k8s.io;v=v2;as=Flagz', 'application/json'],
    [`application/cbor;${v1beta1}`, 'application/json'],
    ['application/yaml;q=0.9,image/png', 'application/yaml'],
  ];
  for (const [accept, type] of cases) {
    const { status, headers, body } = await zPageAnswer(accept, page);
    assert.deepEqual([status, headers], [406, { 'content-type': type }], accept);
    assert.match(body, /only the following media types are accepted: application\/json, application\/yaml, text\/plain/, accept);
  }
});
