import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Schema } from '../../proto/kube/schema-types.ts';

/**
 * Field numbers of the protobuf form of API objects, which kubectl's typed commands send. Read from the tags of the
 * Go types; types and lists come from schema.json. One text per type: `1metadata,2spec*,3^VolumeSource` where `*`
 * is a pointer (its zero value counts) and `^` a structure whose fields belong to the outer one.
 */

const FIELD = /^\t(\w+(?:\.\w+)?)?[ \t]*(\*?)([\w.[\]*{}]+)?[ \t]+`([^`]*)`/;

function fieldsOf(body: string): string[] {
  const out: string[] = [];
  for (const line of body.split('\n')) {
    const found = FIELD.exec(line);
    const tags = found?.[4];
    if (found === null || tags === undefined) continue;
    const number = /protobuf:"[a-z0-9]+,(\d+),/.exec(tags)?.[1];
    const json = /json:"([^"]*)"/.exec(tags)?.[1];
    if (number === undefined || json === undefined) continue;
    const name = json.split(',')[0]!;
    const isPointer = /^\t\w+[ \t]+\*/.test(line);
    const type = /^\t(?:\w+[ \t]+)?\*?([\w.]+)[ \t]+`/.exec(line)?.[1]?.split('.').at(-1) ?? '';
    if (name === '') out.push(`${number}^${type}`);
    else out.push(`${number}${name}${isPointer || !json.includes('omitempty') ? '*' : ''}`);
  }
  return out;
}

function structuresOf(file: string): Map<string, string[]> {
  const out = new Map<string, string[]>();
  for (const [, name, body] of readFileSync(file, 'utf8').matchAll(/^type (\w+) struct \{\n([\s\S]*?)^\}/gm)) out.set(name!, fieldsOf(body!));
  return out;
}

/** Reads the tags of every type the schema names; undefined where the Go modules are missing. */
export function buildWire(modules: string, schema: Schema, version: string): Record<string, string> | undefined {
  const roots: Record<string, string> = {
    'io.k8s.api.': join(modules, `k8s.io/api@${version}`),
    'io.k8s.apimachinery.pkg.': join(modules, `k8s.io/apimachinery@${version}/pkg`),
    'io.k8s.apiextensions-apiserver.pkg.apis.': join(modules, `k8s.io/apiextensions-apiserver@${version}/pkg/apis`),
    'io.k8s.kube-aggregator.pkg.apis.': join(modules, `k8s.io/kube-aggregator@${version}/pkg/apis`),
  };
  if (!existsSync(roots['io.k8s.api.']!)) return undefined;
  const packages = new Map<string, Map<string, string[]>>();
  const structures = (id: string): Map<string, string[]> | undefined => {
    const found = Object.entries(roots).find(([prefix]) => id.startsWith(prefix));
    if (found === undefined) return undefined;
    const [prefix, root] = found;
    const path = join(root, ...id.slice(prefix.length).split('.').slice(0, -1));
    let own = packages.get(path);
    if (own === undefined && existsSync(path)) {
      own = new Map(
        readdirSync(path)
          .filter((name) => name.endsWith('.go') && !name.endsWith('_test.go') && !name.includes('generated'))
          .flatMap((name) => [...structuresOf(join(path, name))]),
      );
      packages.set(path, own);
    }
    return own;
  };
  const out: Record<string, string> = {};
  for (const [name, { id }] of Object.entries(schema.definitions)) {
    const own = structures(id);
    const fields = own?.get(id.split('.').at(-1)!);
    if (fields === undefined || fields.length === 0) continue;
    out[name] = fields.join(',');
    for (const field of fields) {
      const inner = /^\d+\^(\w+)$/.exec(field)?.[1];
      const inline = inner === undefined ? undefined : own?.get(inner);
      if (inline !== undefined) out[inner!] ??= inline.join(',');
    }
  }
  return out;
}

export function printWire(wire: Record<string, string>): string {
  return `{\n${Object.keys(wire)
    .toSorted()
    .map((name) => `${JSON.stringify(name)}:${JSON.stringify(wire[name])}`)
    .join(',\n')}\n}\n`;
}
