import { context } from 'esbuild';
import { OpError } from '../../base/errors.ts';

/** The sources as one program, built again from what has changed alone. */
export interface Bundler extends AsyncDisposable {
  /** Builds; gives the file. Throws OpError `invalid` with the first fault of the sources. */
  build(): Promise<string>;
}

const REQUIRE = "import { createRequire as nodeletRequire } from 'node:module'; const require = nodeletRequire(import.meta.url);";

/** The same program as ./nodelet makes, beside it: what ./nodelet holds for fresh is not touched. */
export async function openBundler(root: string): Promise<Bundler> {
  const file = `${root}/dist/dev/nodelet.mjs`;
  const built = await context({
    entryPoints: [`${root}/node/main.ts`],
    outfile: file,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    legalComments: 'none',
    minifySyntax: true,
    minifyWhitespace: true,
    logLevel: 'silent',
    banner: { js: REQUIRE },
  });
  return {
    async build() {
      const fault = await built.rebuild().then(
        () => null,
        (error: unknown) => firstFault(error),
      );
      if (fault !== null) throw new OpError('invalid', 'building', fault);
      return file;
    },
    [Symbol.asyncDispose]: () => built.dispose(),
  };
}

interface Fault {
  readonly text: string;
  readonly location: { readonly file: string; readonly line: number } | null;
}

function firstFault(error: unknown): string {
  const [fault] = (error as { errors?: Fault[] }).errors ?? [];
  if (fault === undefined) throw error;
  return fault.location === null ? fault.text : `${fault.location.file}:${fault.location.line}: ${fault.text}`;
}
