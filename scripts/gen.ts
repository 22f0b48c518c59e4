import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { printCriTypes, readCriSource } from './gen/cri.ts';
import { gateDifferences, printFeatureGates } from './gen/feature-gates.ts';
import { buildResources, printResources } from './gen/kube-resources.ts';
import { buildSchema, printSchema, readKubeSource } from './gen/kube-schema.ts';
import { printKubeTypes } from './gen/kube-types.ts';
import { buildWire, printWire } from './gen/kube-wire.ts';
import { buildPodWire } from './gen/pod-wire.ts';
import { printPluginTypes, readPluginSource } from './gen/plugins.ts';
import type { Schema } from '../proto/kube/schema-types.ts';

/*
 * Generated files are committed. Two steps: the Go modules give schema.json and resources.json (only where the modules
 * are), our own interface definitions their JSON; those give types.ts (always). `--check` writes nothing and fails on a difference.
 */
const kubernetes = 'v1.37.2';
const criApi = 'v0.37.2';
const root = join(import.meta.dirname, '..');
const modules = process.env['GOMODCACHE'] ?? join(process.env['GOPATH'] ?? join(homedir(), 'go'), 'pkg/mod');
const check = process.argv.includes('--check');
const stale: string[] = [];

function read(path: string): string {
  try {
    return readFileSync(join(root, path), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}

function put(path: string, text: string): void {
  if (read(path) === text) return;
  if (check) stale.push(path);
  else {
    writeFileSync(join(root, path), text);
    console.log(`wrote ${path}`);
  }
}

const kube = readKubeSource(join(modules, `k8s.io/kubernetes@${kubernetes}`));
if (kube === undefined) {
  console.log(
    `schema.json and resources.json not compared: no k8s.io/kubernetes ${kubernetes} in ${modules} (go mod download k8s.io/kubernetes@${kubernetes})`,
  );
} else {
  const schema = buildSchema(kube);
  put('proto/kube/schema.json', printSchema(schema));
  put('proto/kube/resources.json', printResources(buildResources(kube.swagger, schema)));
  const wire = buildWire(modules, schema, criApi);
  if (wire !== undefined) put('proto/kube/wire.json', printWire(wire));
}
put(
  'proto/kube/pod-wire.json',
  printWire(buildPodWire(JSON.parse(read('proto/kube/schema.json')) as Schema, JSON.parse(read('proto/kube/wire.json')) as Record<string, string>)),
);
put('proto/kube/types.ts', printKubeTypes(JSON.parse(read('proto/kube/schema.json')) as Schema));

const cri = readCriSource(read('proto/cri/api.proto'));
put('proto/cri/api.json', cri);
const upstreamCri = join(modules, `k8s.io/cri-api@${criApi}/pkg/apis/runtime/v1/api.proto`);
if (!existsSync(upstreamCri)) {
  console.log(`proto/cri/api.proto not compared: no k8s.io/cri-api ${criApi} in ${modules} (go mod download k8s.io/cri-api@${criApi})`);
} else if (readCriSource(readFileSync(upstreamCri, 'utf8')) !== cri) {
  console.error('proto/cri/api.proto differs from upstream’s on the wire');
  process.exitCode = 1;
}
put('proto/cri/types.ts', printCriTypes(read('proto/cri/api.json')));

const differences = gateDifferences(modules);
if (differences === undefined) console.log(`base/feature-gates.ts not compared: not all Go modules of Kubernetes ${kubernetes} are in ${modules}`);
else if (differences.length > 0) {
  console.error(`base/feature-gates.ts differs from upstream: ${differences.join(', ')}`);
  process.exitCode = 1;
}
put('docs/feature-gates.md', printFeatureGates());

for (const file of readdirSync(join(root, 'proto/plugins'))) {
  if (!file.endsWith('.proto')) continue;
  const name = `proto/plugins/${file.slice(0, -'.proto'.length)}`;
  put(`${name}.json`, readPluginSource(read(`proto/plugins/${file}`)));
  put(`${name}.ts`, printPluginTypes(file, read(`${name}.json`)));
}

if (stale.length > 0) {
  console.error(`not fresh, run \`npm run gen\`: ${stale.join(', ')}`);
  process.exitCode = 1;
}
