import { parseArgs } from 'node:util';
import { realClock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { createKubeApi } from '../base/kubeapi/client.ts';
import { readKubeConfig } from '../base/kubeapi/config.ts';
import { createLog } from '../base/log.ts';
import { realRng } from '../base/rng.ts';
import { startDns } from '../control/mod.ts';

/** Cluster DNS beside a control plane that brings none: the same server that `control` starts within itself. */
export async function main(host: Host): Promise<number> {
  const { values } = parseArgs({
    args: [...host.args],
    options: {
      kubeconfig: { type: 'string' },
      listen: { type: 'string' },
      upstream: { type: 'string', default: '' },
      'service-cluster-ip-range': { type: 'string', default: '10.96.0.0/16' },
      'advertise-address': { type: 'string', default: '' },
    },
  });
  if (values.kubeconfig === undefined || values.listen === undefined) {
    host.stderr('nodelet dns: --kubeconfig FILE and --listen ADDRESS:PORT are needed\n');
    return 2;
  }
  const log = createLog({ name: 'dns', verbosity: 0, nowMs: () => realClock.nowMs(), pid: host.pid, write: (line) => host.stderr(line) });
  await using api = createKubeApi({ config: await readKubeConfig(values.kubeconfig), log, clock: realClock, rng: realRng, userAgent: 'nodelet-dns' });
  const running = startDns({
    api,
    clock: realClock,
    rng: realRng,
    log,
    signal: host.signal,
    config: {
      serviceCIDR: values['service-cluster-ip-range'],
      clusterDomain: 'cluster.local',
      rootCA: '',
      dnsListen: values.listen,
      dnsUpstreams: values.upstream.split(',').filter((address) => address !== ''),
      advertiseAddress: values['advertise-address'],
    },
  });
  await using _dns = await running;
  await new Promise<void>((resolve) => host.signal.addEventListener('abort', () => resolve(), { once: true }));
  return 0;
}
