import assert from 'node:assert/strict';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { execa } from 'execa';
import { eventually } from '../set.ts';

/* The launcher in a checkout of its own whose npm is a script: what it does when installing does not go well. */
const arch = process.arch === 'arm64' ? 'arm64' : 'x64';
const checkout = new URL('../..', import.meta.url).pathname;

/** Makes what the real npm would: a Node that runs what it is given, and an esbuild that writes a file. */
const NPM = `#!/bin/sh
echo "$*" >> "$STUB/calls"
case $1 in
  config) echo /etc/npmrc ;;
  install)
    [ ! -e "$STUB/refuse" ] || { echo 'npm error code ECONNREFUSED' >&2; exit 1; }
    bin=$3/node_modules/node-linux-${arch}/bin
    mkdir -p "$bin"
    printf '#!/bin/sh\\ncase $1 in -*) echo it runs; [ ! -e "$STUB/env" ] || env | grep ^NODE_ | sort ;; *) exec sh "$@" ;; esac\\n' > "$bin/node"
    chmod 755 "$bin/node" ;;
  ci)
    rm -rf node_modules
    mkdir -p node_modules/half
    while [ -e "$STUB/hold" ]; do sleep 0.05; done
    mkdir -p node_modules/@esbuild/linux-${arch}/bin
    printf '#!/bin/sh\\nfor a; do case $a in --outfile=*) echo > "\${a#*=}"; echo > "\${a#*=}.map" ;; esac; done\\n' > node_modules/@esbuild/linux-${arch}/bin/esbuild
    chmod 755 node_modules/@esbuild/linux-${arch}/bin/esbuild ;;
esac
`;

interface Checkout extends Disposable {
  readonly root: string;
  /** Files that tell the npm script what to do, and what it was asked for. */
  readonly stub: string;
  run(options?: { path?: string; uid?: number; command?: string; env?: Record<string, string> }): Promise<{ code: number | undefined; said: string }>;
  calls(): string[];
}

function freshCheckout(): Checkout {
  const folder = mkdtempSync(join(tmpdir(), 'nodelet-launcher-'));
  const [root, stub] = [join(folder, 'checkout'), join(folder, 'stub')];
  for (const dir of [join(stub, 'bin'), ...['agent', 'base', 'cni', 'control', 'cri', 'netfilter', 'node', 'proto'].map((room) => join(root, room))])
    mkdirSync(dir, { recursive: true });
  for (const file of ['nodelet', '.node-version', 'package.json', 'package-lock.json']) cpSync(join(checkout, file), join(root, file));
  for (const [name, text] of Object.entries({ npm: NPM, node: '#!/bin/sh\n' })) {
    writeFileSync(join(stub, 'bin', name), text);
    chmodSync(join(stub, 'bin', name), 0o755);
  }
  return {
    root,
    stub,
    async run({ path = `${join(stub, 'bin')}:/usr/bin:/bin`, command = 'status', env = {}, ...user } = {}) {
      const result = await execa(join(root, 'nodelet'), [command], {
        reject: false,
        all: true,
        stdin: 'ignore',
        extendEnv: false,
        env: { PATH: path, STUB: stub, ...env },
        ...user,
      });
      return { code: result.exitCode, said: result.all };
    },
    calls: () => (existsSync(join(stub, 'calls')) ? readFileSync(join(stub, 'calls'), 'utf8').trim().split('\n') : []),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}

const installs = (at: Checkout, what: string): number => at.calls().filter((line) => line.startsWith(what)).length;

test('a fresh checkout installs once, and then only runs', async () => {
  using at = freshCheckout();
  const first = await at.run();
  assert.equal(first.code, 0, first.said);
  assert.match(first.said, /Node .* installed \(.*\n.*npm packages installed \(.*\n.*one file built .*\nit runs$/);
  const second = await at.run();
  assert.equal(second.said, 'it runs');
  assert.deepEqual([installs(at, 'install'), installs(at, 'ci')], [1, 1]);
});

test('what a shell says of Node reaches no daemon, and people’s own certificates reach people’s commands', async () => {
  using at = freshCheckout();
  await at.run();
  writeFileSync(join(at.stub, 'env'), '');
  const env = { NODE_OPTIONS: '--inspect', NODE_TLS_REJECT_UNAUTHORIZED: '0', NODE_PATH: '/x', NODE_EXTRA_CA_CERTS: '/proxy.pem' };
  const seen = async (command: string): Promise<string[]> =>
    [...(await at.run({ command, env })).said.matchAll(/^NODE_(?!COMPILE_CACHE)\w+=.*$/gm)].map(([line]) => line);
  for (const daemon of ['agent', 'netfilter', 'control', 'cni', 'dns']) assert.deepEqual(await seen(daemon), [], daemon);
  assert.deepEqual(await seen('assets'), ['NODE_EXTRA_CA_CERTS=/proxy.pem']);
});

test('without npm it says what to install', async () => {
  using at = freshCheckout();
  const tools = join(at.stub, 'tools');
  mkdirSync(tools);
  for (const name of ['sh', 'cat', 'cmp', 'date', 'dirname', 'find', 'flock', 'mkdir', 'readlink', 'rm', 'uname']) {
    const from = ['/usr/bin', '/bin'].map((dir) => join(dir, name)).find(existsSync);
    assert.ok(from, name);
    writeFileSync(join(tools, name), `#!/bin/sh\nexec ${from} "$@"\n`, { mode: 0o755 });
  }
  const result = await at.run({ path: tools });
  assert.equal(result.code, 1);
  assert.match(result.said, /^nodelet: Node 20 or later and npm are needed.*\n {2}apt-get install nodejs npm$/);
});

test('a registry that refuses is told with its own words, and leaves nothing behind', async () => {
  using at = freshCheckout();
  writeFileSync(join(at.stub, 'refuse'), '');
  const result = await at.run();
  assert.equal(result.code, 1);
  assert.match(result.said, /ECONNREFUSED\nnodelet: installing Node .* failed.*\n {2}is the registry reachable\?/);
  assert.deepEqual(readdirSync(join(at.root, '.tools')), ['lock']);
  rmSync(join(at.stub, 'refuse'));
  assert.equal((await at.run()).code, 0);
});

test('two at once install once; the other says that it waits', async () => {
  using at = freshCheckout();
  writeFileSync(join(at.stub, 'hold'), '');
  const one = at.run();
  await eventually('npm ci is called', 10_000, async () => (installs(at, 'ci') === 1 ? true : null));
  const two = at.run();
  await new Promise((resolve) => setTimeout(resolve, 300));
  rmSync(join(at.stub, 'hold'));
  const [first, second] = await Promise.all([one, two]);
  assert.deepEqual([first.code, second.code], [0, 0]);
  assert.match(second.said, /waiting for another nodelet that installs here\nit runs$/);
  assert.deepEqual([installs(at, 'install'), installs(at, 'ci')], [1, 1]);
});

test('killed in the middle of installing, the next one installs again', async () => {
  using at = freshCheckout();
  writeFileSync(join(at.stub, 'hold'), '');
  const killed = execa(join(at.root, 'nodelet'), ['status'], {
    reject: false,
    detached: true,
    stdio: 'ignore',
    extendEnv: false,
    env: { PATH: `${join(at.stub, 'bin')}:/usr/bin:/bin`, STUB: at.stub },
  });
  await eventually('npm ci is called', 10_000, async () => (installs(at, 'ci') === 1 && existsSync(join(at.root, 'node_modules/half')) ? true : null));
  assert.ok(killed.pid);
  process.kill(-killed.pid, 'SIGKILL');
  await killed;
  rmSync(join(at.stub, 'hold'));
  const result = await at.run();
  assert.equal(result.code, 0, result.said);
  assert.equal(installs(at, 'ci'), 2);
  assert.equal(existsSync(join(at.root, 'node_modules/half')), true);
});

test('a place that cannot be written is named', async (t) => {
  using at = freshCheckout();
  writeFileSync(join(at.root, 'dist'), '');
  const noDist = await at.run();
  assert.equal(noDist.code, 1);
  assert.match(noDist.said, /nodelet: building one file from the sources failed.*\n {2}can .*dist be written\?/);
  if (process.getuid?.() !== 0) return t.diagnostic('not root: no other user to try it as');
  rmSync(join(at.root, '.tools'), { recursive: true });
  chmodSync(join(at.root, '..'), 0o755);
  const notOwner = await at.run({ uid: 65_534 });
  assert.equal(notOwner.code, 1);
  assert.match(notOwner.said, /^nodelet: .*checkout is not writable.*\n {2}run it as the owner/);
});
