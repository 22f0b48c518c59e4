/** The images that critest 1.37 pulls. */
import type { E2eImage, LayerFile, LayerRecipe } from './recipes.ts';
import { BUSYBOX, NGINX, PATH, PAUSE } from './settings.ts';
import { BUSYBOX_GROUP, BUSYBOX_PASSWD, HOST_NGINX, HTTPD, HTTPD_CONF } from './texts.ts';

const E2E = 'registry.k8s.io/e2e-test-images';
const STAGING = 'gcr.io/k8s-staging-cri-tools';
const ARCHITECTURE = process.arch === 'arm64' ? 'arm64' : 'amd64';

const text = (path: string, content: string, mode = 0o644): LayerFile => ({ path, mode, content: { kind: 'text', text: content } });

/** Images that differ by one file, so that their IDs do. */
const MARKS = ['1', '2', '3', 'latest', 'test', 'all', 'tags'];

export const CRITEST_LAYERS: Readonly<Record<string, LayerRecipe>> = {
  predefined: {
    files: [
      text('/etc/passwd', `${BUSYBOX_PASSWD}default-user:x:1000:1000:Linux User,,,:/home/default-user:/bin/sh\n`),
      text('/etc/group', `${BUSYBOX_GROUP}default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n`),
      { path: '/home/default-user', content: { kind: 'directory' } },
    ],
  },
  hostnginx: { files: [text('/etc/nginx/nginx.conf', HOST_NGINX)] },
  httpd: {
    packages: ['apache2-bin'],
    files: [
      text('/usr/local/bin/httpd-foreground', HTTPD, 0o755),
      text('/usr/local/apache2/conf/httpd.conf', HTTPD_CONF),
      text('/usr/local/apache2/htdocs/index.html', '<html><body><h1>It works!</h1></body></html>\n'),
      { path: '/usr/local/apache2/logs', content: { kind: 'directory' } },
    ],
  },
  ...Object.fromEntries(MARKS.map((mark): [string, LayerRecipe] => [`mark-${mark}`, { files: [text(`/${mark}`, `${mark}\n`)] }])),
};

const staging = (name: string, mark: string, identity?: string): E2eImage => ({
  name: `${STAGING}/${name}`,
  layers: ['busybox', `mark-${mark}`],
  settings: BUSYBOX,
  ...(identity === undefined ? {} : { identity }),
});
const user = (name: string, who: string): E2eImage => ({
  name: `${STAGING}/test-image-${name}:latest`,
  layers: ['busybox'],
  settings: { ...BUSYBOX, user: who },
});

/** Names: pkg/validate and pkg/framework of cri-tools 1.37.0; users: its images/build. */
export const CRITEST_IMAGES: readonly E2eImage[] = [
  { name: `${E2E}/busybox:1.29-2`, layers: ['busybox'], settings: BUSYBOX },
  { name: `${E2E}/nginx:1.14-2`, layers: ['base', 'nginx'], settings: NGINX },
  { name: `${E2E}/nonewprivs:1.3`, layers: ['base', 'nonewprivs'], settings: { env: [PATH], cmd: ['nnp'] } },
  {
    name: `${E2E}/httpd:2.4.39-4`,
    layers: ['base', 'httpd'],
    settings: { env: [PATH], workingDir: '/usr/local/apache2', cmd: ['httpd-foreground'], stopSignal: 'SIGWINCH', exposedPorts: ['80/tcp'] },
  },
  // One image from two registries.
  { name: 'registry.k8s.io/pause:3.9', layers: ['pause'], settings: PAUSE, identity: 'pause:3.9' },
  { name: 'k8s.gcr.io/pause:3.9', layers: ['pause'], settings: PAUSE, identity: 'pause:3.9' },
  { name: `${STAGING}/hostnet-nginx-${ARCHITECTURE}:latest`, layers: ['base', 'nginx', 'hostnginx'], settings: NGINX },
  user('user-uid', '1002'),
  user('user-username', 'www-data'),
  user('user-uid-group', '1003:1004'),
  user('user-username-group', 'www-data:1004'),
  { name: `${STAGING}/test-image-predefined-group:latest`, layers: ['busybox', 'predefined'], settings: { ...BUSYBOX, user: '1000' } },
  staging('test-image-latest:latest', 'latest'),
  staging('test-image-tag:test', 'test'),
  staging('test-image-tag:all', 'all'),
  ...['1', '2', '3'].map((number) => staging(`test-image-${number}:latest`, number)),
  // One image under three tags.
  ...['1', '2', '3'].map((number) => staging(`test-image-tags:${number}`, 'tags', 'test-image-tags')),
];
