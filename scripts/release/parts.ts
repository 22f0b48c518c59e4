import { readdir } from 'node:fs/promises';

/** A file of the release: its place below the root, and where it comes from. */
export interface Part {
  readonly name: string;
  readonly from: string;
  readonly mode: number;
}

/** What a release of the checkout at `root` holds. */
export async function partsOf(root: string): Promise<Part[]> {
  const web = (await readdir(`${root}/dist/web`)).sort();
  return [
    { name: 'LICENSE', from: `${root}/LICENSE`, mode: 0o644 },
    { name: 'bin/node', from: process.execPath, mode: 0o755 },
    { name: 'dist/nodelet.mjs', from: `${root}/dist/nodelet.mjs`, mode: 0o644 },
    { name: 'dist/netfilter.cjs', from: `${root}/dist/netfilter.cjs`, mode: 0o644 },
    { name: 'dist/sys', from: `${root}/dist/sys`, mode: 0o755 },
    { name: 'dist/cni/nodelet', from: `${root}/dist/cni/nodelet`, mode: 0o755 },
    ...web.map((name) => ({ name: `dist/web/${name}`, from: `${root}/dist/web/${name}`, mode: 0o644 })),
  ];
}
