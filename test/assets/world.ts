import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tryExec, type ExecResult } from '../../base/exec.ts';
import type { Progress } from '../../node/io/progress.ts';
import { buildAssets, type Built } from './build.ts';
import type { AssetName } from './catalogue.ts';

/** A machine of its own for the command: a home, a cache, and a PATH with only what a test puts there. */
export interface World extends AsyncDisposable {
  readonly folder: string;
  readonly bin: string;
  /** Where sets are kept. */
  readonly root: string;
  readonly env: Readonly<Record<string, string>>;
  /** Writes an executable shell script. */
  script(path: string, body: string): Promise<void>;
  /** Builds as the command does. */
  build(names: readonly AssetName[]): Promise<Built>;
  /** Runs `nodelet assets ARGS`. */
  assets(args: readonly string[], options?: { env?: Record<string, string> }): Promise<ExecResult>;
}

const quiet: Progress = { times: [], note: () => undefined, step: (_title, work) => work() };
const MAIN = new URL('main.ts', import.meta.url).pathname;
const SYSTEM = '/usr/sbin:/usr/bin:/sbin:/bin';

export async function makeWorld(): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'nodelet-assets-'));
  const bin = `${folder}/bin`;
  await mkdir(bin);
  const root = `${folder}/cache/nodelet/assets`;
  const env = { HOME: folder, XDG_CACHE_HOME: `${folder}/cache`, PATH: bin };
  return {
    folder,
    bin,
    root,
    env,
    async script(path, body) {
      await mkdir(path.slice(0, path.lastIndexOf('/')), { recursive: true });
      await writeFile(path, `#!/bin/sh\nPATH=${SYSTEM}\n${body}\n`);
      await chmod(path, 0o755);
    },
    build: (names) => buildAssets(names, { root, env, signal: new AbortController().signal, progress: quiet }),
    assets: (args, options = {}) =>
      tryExec([process.execPath, '--disable-warning=ExperimentalWarning', MAIN, ...args], {
        env: { ...env, ...options.env },
      }),
    async [Symbol.asyncDispose]() {
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/**
 * A Go that compiles nothing: it writes a script which says what the stamps in `-ldflags` say, and notes each build
 * in `builds`. `before` is shell that runs first, with `$out` and `$package` set.
 */
export const fakeGo = (world: World, before = ''): Promise<void> =>
  world.script(
    `${world.bin}/go`,
    `if [ "$1" = env ]; then printf 'go1.26.8\\nlinux\\namd64\\n'; exit 0; fi
flags=
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift ;; -ldflags) flags=$2; shift ;; esac
  package=$1; shift
done
echo "$package" >> ${world.folder}/builds
${before}
echo "fake/package" >&2
stamp=$(echo "$flags" | tr ' ' '\\n' | sed -n 's/.*[Vv]ersion=v//p' | head -1)
case "$package" in
  */kubectl) say="{\\"gitVersion\\": \\"v$stamp\\"}" ;;
  */kubeadm) say="v$stamp" ;;
  */plugins/plugins/*) say="CNI some plugin v$stamp" ;;
  */crictl) say="crictl version v$stamp" ;;
  */kind) say="kind v0.33.0 go1.26.8 linux/amd64" ;;
  *) say="Kubernetes v$stamp" ;;
esac
printf '#!/bin/sh\\necho '"'%s'"'\\n' "$say" > "$out"`,
  );
