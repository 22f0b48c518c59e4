import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { pack } from 'tar-stream';

export interface ImageFile {
  path: string;
  mode: number;
  /** Contents, or where a link leads. */
  content: Buffer | { link: string };
}

async function tar(files: readonly ImageFile[]): Promise<Buffer> {
  const archive = pack();
  for (const { path, mode, content } of files) {
    if (Buffer.isBuffer(content)) archive.entry({ name: path, mode, mtime: new Date(0) }, content);
    else archive.entry({ name: path, mode, type: 'symlink', linkname: content.link, mtime: new Date(0) });
  }
  archive.finalize();
  return buffer(archive);
}

/** An image in the form that `ctr images import` and `docker load` read. */
export async function writeImage(target: string, name: string, files: readonly ImageFile[], config: object): Promise<void> {
  const layer = await tar(files);
  const image = Buffer.from(
    JSON.stringify({
      architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
      os: 'linux',
      config,
      rootfs: { type: 'layers', diff_ids: [`sha256:${createHash('sha256').update(layer).digest('hex')}`] },
    }),
  );
  const manifest = Buffer.from(JSON.stringify([{ Config: 'config.json', RepoTags: [name], Layers: ['layer.tar'] }]));
  await writeFile(
    target,
    await tar([
      { path: 'layer.tar', mode: 0o644, content: layer },
      { path: 'config.json', mode: 0o644, content: image },
      { path: 'manifest.json', mode: 0o644, content: manifest },
    ]),
  );
}

/** busybox with links for `applets`. */
export async function busyboxFiles(binary: string, applets: readonly string[]): Promise<ImageFile[]> {
  return [
    { path: 'bin/busybox', mode: 0o755, content: await readFile(binary) },
    ...applets.map((applet) => ({ path: `bin/${applet}`, mode: 0o777, content: { link: 'busybox' } })),
  ];
}
