import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { Host } from '../base/host.ts';
import { createLog } from '../base/log.ts';
import { connectProxy, dnsForwarder } from './io/egress.ts';
import { imageServer } from './io/registry.ts';

/* Not the ports that registries and proxies commonly have: theirs often listen on every address of the host. */
export const IMAGE_PORT = 10_889;
export const PROXY_PORT = 10_888;

/** The link with our address is made while we start. */
const ADDRESS_WAIT_MS = 5_000;
const ADDRESS_POLL_MS = 20;

/** What a set needs of the host's network: images made here, a way out for pulls, names. Runs in the host's network namespace. */
export async function main(host: Host): Promise<number> {
  const { values } = parseArgs({
    args: [...host.args],
    options: {
      listen: { type: 'string' },
      from: { type: 'string' },
      images: { type: 'string' },
      'resolv-conf': { type: 'string', default: '/etc/resolv.conf' },
    },
  });
  if (values.listen === undefined || values.from === undefined || values.images === undefined) {
    host.stderr('nodelet egress: --listen ADDRESS, --from SUBNET and --images DIR are needed\n');
    return 2;
  }
  const log = createLog({ name: 'egress', verbosity: 0, nowMs: Date.now, pid: host.pid, write: host.stderr });
  const images = imageServer({ dir: values.images });
  const proxy = connectProxy({ log, from: values.from });
  const listenOnce = (server: typeof images, port: number): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, values.listen, () => {
        server.off('error', reject);
        resolve();
      });
    });
  const listen = async (server: typeof images, port: number): Promise<void> => {
    for (let waitedMs = 0; ; waitedMs += ADDRESS_POLL_MS) {
      try {
        return await listenOnce(server, port);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRNOTAVAIL' || waitedMs >= ADDRESS_WAIT_MS) throw error;
        await delay(ADDRESS_POLL_MS, undefined, { signal: host.signal });
      }
    }
  };
  await listen(images, IMAGE_PORT);
  await listen(proxy, PROXY_PORT);
  await using _dns = dnsForwarder(values.listen, values['resolv-conf'], log);
  log.info('serving', { address: values.listen });
  await new Promise<void>((resolve) => host.signal.addEventListener('abort', () => resolve(), { once: true }));
  images.close();
  proxy.close();
  images.closeAllConnections();
  proxy.closeAllConnections();
  return 0;
}
