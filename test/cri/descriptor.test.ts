import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { allMethods, messageTypes } from '../../cri/shape.ts';
import { findAssets } from '../assets/find.ts';
import type { AssetName } from '../assets/catalogue.ts';
import { descriptorLines, findDescriptor } from './descriptor.ts';

const FILE = 'pkg/apis/runtime/v1/api.proto';
const assets = await findAssets({ env: process.env });

/** Our definitions, in the words of `descriptorLines`. */
function ourLines(): string[] {
  const lines: string[] = [];
  for (const [name, { fields, values }] of messageTypes) {
    if (values !== undefined) for (const [value, number] of Object.entries(values)) lines.push(`enum ${name}.${value} = ${number}`);
    if (fields === undefined) continue;
    lines.push(`message ${name}`);
    for (const [field, said] of Object.entries(fields)) {
      const { id, type, rule, keyType } = said as typeof said & { id: number };
      lines.push(`${name}.${field} = ${id} ${keyType === undefined ? `${rule === 'repeated' ? 'repeated ' : ''}${type}` : `map<${keyType}, ${type}>`}`);
    }
  }
  for (const { service, method, requestType, responseType, responseStream } of allMethods())
    lines.push(`${service}.${method}(${requestType}) ${responseStream === true ? 'stream ' : ''}${responseType}`);
  return lines.toSorted();
}

function linesOf(name: AssetName): string[] {
  const descriptor = findDescriptor(readFileSync(assets.require(name, 'reading its descriptor')), FILE, 'runtime.v1');
  assert.ok(descriptor !== null, `${name} carries no descriptor of ${FILE}`);
  return descriptorLines(descriptor);
}

const skipOf = (name: AssetName): string | false => (assets.path(name) === null ? `no ${name} here (nodelet assets list)` : false);

for (const name of ['kubelet', 'critest', 'crictl'] as const) {
  const skip = skipOf(name);
  if (skip !== false) console.log(`descriptor: skipped, ${skip}`);
  test(`our definitions are those of the ${name} of 1.37: each message, field, number, type, enum and method`, { skip }, () => {
    const theirs = linesOf(name);
    assert.deepEqual(ourLines(), theirs);
    assert.equal(theirs.filter((line) => line.includes('Service.')).length, 43);
    assert.equal(theirs.filter((line) => line.includes('Service.') && line.includes(' stream ')).length, 7);
    assert.ok(theirs.length > 700, `${theirs.length} facts`);
  });
}

/** Enums by their numbers: 1.37 gave the values of Signal other names (`SIGNAL_SIGTERM`), which only JSON shows. */
const onTheWire = (lines: readonly string[]): string[] => lines.map((line) => line.replace(/^(enum \w+)\.\w+/, '$1'));

for (const name of ['containerd-2.4/containerd', 'containerd-2.3/containerd'] as const) {
  const skip = skipOf(name);
  if (skip !== false) console.log(`descriptor: skipped, ${skip}`);
  test(`all that ${name} knows is known here by the same numbers`, { skip }, () => {
    const ours = new Set(onTheWire(ourLines()));
    assert.deepEqual(
      onTheWire(linesOf(name)).filter((line) => !ours.has(line)),
      [],
    );
  });
}
