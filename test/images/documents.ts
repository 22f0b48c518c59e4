/** The images of the documents behind the walkthroughs, made of the distribution's own nginx and redis: the names are the documents', the versions are not. */
import type { E2eImage, LayerRecipe } from './recipes.ts';
import { NGINX, PATH } from './settings.ts';

export const WEB_IMAGES = ['1.29', '1.30-alpine', '1.31-alpine'].map((tag) => `docker.io/library/nginx:${tag}`);
export const REDIS_IMAGE = 'docker.io/library/redis:8.2-alpine';

export const DOCUMENT_LAYERS: Readonly<Record<string, LayerRecipe>> = {
  redis: { packages: ['redis-server', 'redis-tools'], files: [{ path: '/data', mode: 0o755, content: { kind: 'directory' } }] },
};

export const DOCUMENT_IMAGES: readonly E2eImage[] = [
  ...WEB_IMAGES.map((name): E2eImage => ({ name, layers: ['base', 'nginx'], settings: NGINX, onRequest: true })),
  {
    name: REDIS_IMAGE,
    layers: ['base', 'redis'],
    settings: { env: [PATH], workingDir: '/data', cmd: ['redis-server'], exposedPorts: ['6379/tcp'] },
    onRequest: true,
  },
];
