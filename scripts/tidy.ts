/**
 * The rules of the house that the compiler cannot see. Each rule names its reason; a permission that nothing uses
 * any more is an error, so that the lists cannot rot.
 */
import { readFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { dirname, join, normalize } from 'node:path';

interface Finding {
  file: string;
  line: number;
  text: string;
}

const ROOMS: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  base: ['proto'],
  cri: ['base', 'proto'],
  agent: ['cri', 'base', 'proto'],
  netfilter: ['base', 'proto'],
  cni: ['base', 'proto'],
  control: ['base', 'proto'],
  node: ['agent', 'netfilter', 'cni', 'control', 'cri', 'base', 'proto'],
  scripts: ['agent', 'netfilter', 'cni', 'control', 'cri', 'base', 'proto', 'node'],
  test: ['agent', 'netfilter', 'cni', 'control', 'cri', 'base', 'proto', 'node', 'scripts'],
};
/** Rooms whose files may be imported one by one; of the others only the door. */
const OPEN_ROOMS = ['base', 'proto'];
const DOORS: Readonly<Record<string, readonly string[]>> = {
  node: ['mod.ts', 'main.ts', 'fake.ts'],
  cri: ['mod.ts', 'fake.ts', 'testing.ts'],
  default: ['mod.ts', 'fake.ts'],
};
/** What the pure rooms may import of base/. */
const PURE_BASE = [
  'base/assert.ts',
  'base/errors.ts',
  'base/kubeapi/errors.ts',
  'base/kubeapi/types.ts',
  'base/netlink.ts',
  'base/sys/types.ts',
  'base/time.ts',
  'base/duration.ts',
  'base/bytes.ts',
  'base/utf8.ts',
  'base/protobuf.ts',
  'base/conntrack.ts',
  'base/metrics-text.ts',
  'base/component-pages.ts',
  'base/feature-gates.ts',
  'base/feature-gate-needs.ts',
];
/** npm packages and the only places that may import them. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  '@grpc/grpc-js': ['cri/', 'agent/io/'],
  '@grpc/proto-loader': ['cri/', 'agent/io/'],
  protobufjs: ['scripts/gen/'],
  'playwright-core': ['test/'],
  undici: ['base/kubeapi/'],
  execa: ['base/', 'node/', 'test/'],
  systeminformation: ['agent/io/', 'node/'],
  commander: ['node/', 'cri/', 'scripts/', 'test/'],
  'js-yaml': ['base/'],
  'ipaddr.js': ['netfilter/', 'control/', 'node/core/'],
  rfc6902: ['base/kubeapi/'],
  esbuild: ['scripts/kind/'],
  'tar-stream': ['node/', 'test/', 'scripts/'],
};
const BANNED_NAMES = /(^|[-/.])(manager|helper|helpers|util|utils|common|misc)([-/.]|$)/i;
/** Longest file; what is longer today is named with its length, which may only fall. */
const MAX_LINES = 500;
const LONGER: Readonly<Record<string, number>> = JSON.parse(readFileSync(new URL('longer-files.json', import.meta.url), 'utf8')) as Record<string, number>;
const GENERATED = /^proto\/(kube|cri|plugins)\//;
const CLOCK_WORDS = /\b(Date\.now\(|new Date\(\)|Math\.random\(|performance\.now\()/;
/** Files outside base/ that build the real clock or are not part of a daemon. */
const CLOCK_ALLOWED = /^(scripts\/|test\/|base\/)|(^|\/)main\.ts$|^node\//;

function files(): string[] {
  return execFileSync('git', ['-c', 'safe.directory=*', 'ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' })
    .split('\n')
    .filter((file) => file !== '');
}

const findings: Finding[] = [];
const used = new Set<string>();
function report(file: string, line: number, text: string): void {
  findings.push({ file, line, text });
}

function checkImport(file: string, line: number, specifier: string): void {
  const room = file.split('/')[0] ?? '';
  const isTest = file.endsWith('.test.ts');
  const isCore = /^[a-z]+\/core\//.test(file) && !isTest;
  if (specifier.startsWith('node:')) {
    if (isCore) report(file, line, `core/ imports ${specifier}: it decides without the outside, so that a table test reaches all of it`);
    return;
  }
  if (!specifier.startsWith('.')) {
    const name = specifier.startsWith('@') ? specifier.split('/').slice(0, 2).join('/') : (specifier.split('/')[0] ?? '');
    if (isCore && name !== 'ipaddr.js') report(file, line, `core/ imports the package ${name}: it must stay free of the outside`);
    const places = PACKAGES[name];
    if (places === undefined) report(file, line, `the package ${name} has no door: name one in scripts/tidy.ts`);
    else {
      const place = places.find((prefix) => file.startsWith(prefix) || (prefix.startsWith('.') && file.endsWith(prefix)));
      if (place === undefined && !isTest) report(file, line, `${name} is imported outside its door (${places.join(', ')})`);
      used.add(`${name} ${place ?? ''}`);
    }
    return;
  }
  const target = normalize(join(dirname(file), specifier));
  const other = target.split('/')[0] ?? '';
  if (isCore && other === 'base' && !PURE_BASE.includes(target)) report(file, line, `core/ imports ${target}: of base/ only ${PURE_BASE.join(', ')} are pure`);
  if (isCore && other === room && !target.startsWith(`${room}/core/`)) report(file, line, `core/ imports ${target}: imports point main → loop → io → core`);
  if (other === room || isTest) return;
  const allowed = ROOMS[room];
  if (allowed === undefined) return;
  if (!allowed.includes(other)) report(file, line, `${room} imports ${other}: imports point one way (ARCHITECTURE.md)`);
  else if (!OPEN_ROOMS.includes(other) && room !== 'test') {
    const doors = DOORS[room] ?? DOORS['default'] ?? [];
    const rest = target.slice(other.length + 1);
    if (!doors.includes(rest)) report(file, line, `${target} is behind a door: import ${other}/mod.ts`);
  }
}

for (const file of files()) {
  if (BANNED_NAMES.test(file)) report(file, 1, 'the name says nothing: name what it does');
  if (!file.endsWith('.ts') || GENERATED.test(file)) continue;
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    continue;
  }
  const lines = text.split('\n');
  const limit = LONGER[file] ?? MAX_LINES;
  if (lines.length > limit) report(file, lines.length, `${lines.length} lines, more than ${limit}: split by what it owns`);
  if (LONGER[file] !== undefined && lines.length <= MAX_LINES) report('scripts/longer-files.json', 1, `${file} is short enough now: take it off the list`);
  const isCore = /^[a-z]+\/core\//.test(file) && !file.endsWith('.test.ts');
  for (const [at, line] of lines.entries()) {
    const specifier =
      /(?:^|\s)(?:import|export)\s.*?from\s+'([^']+)'/.exec(line)?.[1] ?? /^} from '([^']+)'/.exec(line)?.[1] ?? /\bimport\('([^']+)'\)/.exec(line)?.[1];
    if (specifier !== undefined) checkImport(file, at + 1, specifier);
    const isComment = /^\s*(\*|\/\/|\/\*)/.test(line);
    if (!isComment && !file.endsWith('.test.ts') && CLOCK_WORDS.test(line) && !CLOCK_ALLOWED.test(file))
      report(file, at + 1, 'reads the clock or chance: take a Clock or Rng (base/clock.ts, base/rng.ts)');
    if (isCore && !isComment && /\b(async|await|Promise<|setTimeout)\b/.test(line)) report(file, at + 1, 'core/ waits for nothing: no promise, no timer');
    if (/\.(only|todo)\(/.test(line) && file.endsWith('.test.ts')) report(file, at + 1, 'a test that hides others or does nothing');
  }
}
for (const [name, places] of Object.entries(PACKAGES)) {
  for (const place of places) {
    if (!used.has(`${name} ${place}`)) report('scripts/tidy.ts', 1, `nothing in ${place} imports ${name} any more: take the permission away`);
  }
}
for (const finding of findings) process.stdout.write(`${finding.file}:${finding.line}: ${finding.text}\n`);
process.stdout.write(`tidy: ${findings.length} findings\n`);
process.exitCode = findings.length > 0 ? 1 : 0;
