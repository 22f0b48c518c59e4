import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { OpError } from '../../base/errors.ts';
import { mirrorHosts } from '../../node/core/files.ts';
import { imageServer } from '../../node/io/registry.ts';
import type { Program } from '../../scripts/command.ts';
import type { Assets } from '../assets/find.ts';
import { imagesDir } from '../images/command.ts';
import { REDIS_IMAGE, WEB_IMAGES } from '../images/documents.ts';
import { makeE2eImages } from '../images/make.ts';
import { loadImages } from './images.ts';
import type { Cluster } from './walk-world.ts';

/** A registry of the documents' images for the nodes of one cluster, as long as it is not disposed. */
export interface Registry extends AsyncDisposable {
  /** Manifests that were asked for: `image`, once for each node that pulls it. */
  readonly pulls: readonly string[];
}

async function makeImages(program: Program, assets: Assets): Promise<void> {
  const { host, progress } = program;
  const made = await makeE2eImages({ host, store: { dir: imagesDir() }, assets, progress, choice: { only: [...WEB_IMAGES, REDIS_IMAGE] }, build: false });
  if (made.left.length > 0) throw new OpError('not-found', 'making the images of the documents', `${made.left[0]?.name ?? ''}: ${made.left[0]?.why ?? ''}`);
}

/**
 * Makes the documents' images and serves them to the cluster's nodes at the gateway of its network, or loads them where
 * the engine runs on another machine: then null, and no node pulls.
 */
export async function serveImages(program: Program, assets: Assets, cluster: Cluster): Promise<Registry | null> {
  await makeImages(program, assets);
  const gateway = await cluster.docker(['inspect', '--format', '{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}', cluster.control.node]);
  const pulls: string[] = [];
  const store = imageServer({ dir: imagesDir() });
  const server = createServer((request, response) => {
    const image = /^\/v2\/(.+)\/manifests\/([^/?]+)/.exec(request.url ?? '');
    if (image !== null && request.method === 'GET') pulls.push(`${image[1] ?? ''} from ${request.socket.remoteAddress ?? ''}`);
    store.emit('request', request, response);
  });
  const isHere = await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(0, gateway, () => resolve(true));
  });
  if (!isHere) {
    await loadImages(program, assets, cluster.engine, { cluster: cluster.name, nodes: cluster.workers, images: [...WEB_IMAGES, REDIS_IMAGE] });
    return null;
  }
  const mirror = `http://${gateway}:${(server.address() as AddressInfo).port}`;
  const folder = '/etc/containerd/certs.d/docker.io';
  for (const worker of cluster.workers) await cluster.at(worker).write(`${folder}/hosts.toml`, mirrorHosts(mirror));
  return {
    pulls,
    async [Symbol.asyncDispose]() {
      for (const worker of cluster.workers) await cluster.at(worker).ask(['rm', '-rf', folder]);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
