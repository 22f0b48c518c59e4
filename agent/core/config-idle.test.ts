import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { configFields } from './config.ts';
import { flags } from './config-flags.ts';

test('each field that is told to be without effect is a field', () => {
  const text = readFileSync(new URL('../../docs/kubelet-configuration.md', import.meta.url), 'utf8');
  const rows = text.split('\n').filter((line) => line.startsWith('| `'));
  const names = rows.flatMap((line) => [...(line.split('|')[1] ?? '').matchAll(/`([\w.]+)`/g)].map(([, name = '']) => name.split('.')[0] ?? ''));
  assert.ok(names.length > 15);
  assert.deepEqual(
    names.filter((name) => !Object.hasOwn(configFields, name)),
    [],
  );
});

test('each flag that does nothing is told to, and no other', () => {
  const text = readFileSync(new URL('../../docs/kubelet-configuration.md', import.meta.url), 'utf8');
  const told = [...(text.split('## Flags without effect here')[1] ?? '').matchAll(/`--([\w-]+)…?`/g)].map(([, name = '']) => name);
  const idle = Object.entries(flags).flatMap(([name, { ignored }]) => (ignored === true ? [name] : []));
  assert.ok(idle.length > 5);
  assert.deepEqual(
    idle.filter((name) => !told.some((each) => name === each || (each.endsWith('-') && name.startsWith(each)))),
    [],
  );
  for (const each of told)
    assert.ok(
      idle.some((name) => name.startsWith(each)),
      each,
    );
});
