import assert from 'node:assert/strict';
import { test } from 'node:test';
import { printYaml, readPlainJson, readYaml, readYamlAll } from './yaml.ts';

test('scalars mean what they mean to the API machinery', async () => {
  const cases: [string, unknown][] = [
    ['yes', true],
    ['on', true],
    ['y', true],
    ['No', false],
    ['0755', 493],
    ['0o755', 493],
    ['0644', 420],
    ['0x1F', 31],
    ['1_000', 1000],
    ['-5', -5],
    ['1.5', 1.5],
    ['2020-01-01', '2020-01-01'],
    ['12:30:45', '12:30:45'],
    ['~', null],
    ['08', 8],
    ['"0755"', '0755'],
    ['100m', '100m'],
    ['1e3', 1000],
  ];
  for (const [source, expected] of cases) assert.deepEqual(((await readYaml(`a: ${source}`, 'test')) as { a: unknown }).a, expected, source);
});

test('merge keys, anchors and several documents', async () => {
  assert.deepEqual(await readYaml('base: &b {a: 1, b: 2}\nx: {<<: *b, b: 3}', 'test'), { base: { a: 1, b: 2 }, x: { a: 1, b: 3 } });
  assert.deepEqual(await readYamlAll('a: 1\n---\n---\nb: 2\n', 'test'), [{ a: 1 }, { b: 2 }]);
  assert.equal(await readYaml('# nothing\n', 'test'), undefined);
  assert.deepEqual(await readYaml('{"a": [1, "x"]}', 'test'), { a: [1, 'x'] });
});

test('what is wrong is said with its place', async () => {
  await assert.rejects(readYaml('a: [1, 2', 'the file'), { code: 'invalid', message: /^read the file: [^{]*\(line \d+, column \d+\)$/ });
  await assert.rejects(readYaml('a: 1\na: 2', 'the file'), { code: 'invalid' });
  await assert.rejects(readYaml('a: 1\n---\nb: 2', 'the file'), { code: 'invalid' });
});

test('a text that unfolds without end is refused', async () => {
  const levels = Array.from({ length: 9 }, (_, n) => `l${n + 1}: &l${n + 1} [${Array(10).fill(`*l${n}`).join(', ')}]`);
  await assert.rejects(readYaml(`l0: &l0 [x]\n${levels.join('\n')}`, 'the file'), { code: 'invalid' });
});

test('what is printed reads back as it was', async () => {
  const value = { a: 'yes', b: '0755', c: '1e3', d: '2020-01-01', e: ['x', null, true, 1.5], f: { 'g h': '' }, long: 'word '.repeat(40) };
  assert.deepEqual(await readYaml(await printYaml(value), 'test'), value);
});

test('what a program wrote as JSON is read as such, and everything else as YAML', async () => {
  const value = { kind: 'X', list: [1, 2.5, 'yes', null, true], text: '2026-01-01', 'a: b': { deep: {} } };
  for (const text of [JSON.stringify(value), `${JSON.stringify(value, null, 2)}\n`]) {
    assert.deepEqual(readPlainJson(text), value);
    assert.deepEqual(await readYaml(text, 'x'), value);
    // The long way says the same.
    assert.deepEqual(await readYaml(`# words\n${text}`, 'x'), value);
  }
  for (const text of ['{"a":1,"a":2}', '{"<<":{"a":1}}', '{"a": 1}', '{"a":1e3}', '{"a":12345678901234567890}', '{"a":1', '[1]', 'a: 1', ''])
    assert.equal(readPlainJson(text), undefined, text);
  await assert.rejects(readYaml('{"a":1,"a":2}', 'x'), /duplicate|dupli/i);
});
