/** What images of one kind are told to run. */
import type { ImageSettings } from '../../node/core/oci.ts';

export const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
export const AGNHOST: ImageSettings = {
  env: [PATH],
  entrypoint: ['/agnhost'],
  cmd: ['pause'],
  exposedPorts: ['80/tcp', '8080/tcp', '8081/tcp', '9376/tcp', '5000/tcp'],
};
export const BUSYBOX: ImageSettings = { env: ['PATH=/bin:/usr/bin:/sbin:/usr/sbin'], cmd: ['sh'] };
export const NGINX: ImageSettings = { env: [PATH], cmd: ['nginx', '-g', 'daemon off;'], stopSignal: 'SIGQUIT', exposedPorts: ['80/tcp'] };
export const PAUSE: ImageSettings = { entrypoint: ['/pause'], user: '65535:65535' };
export const SHELL: ImageSettings = { env: [PATH], cmd: ['/bin/sh'] };
