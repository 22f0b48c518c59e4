import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { watchLoopDelay } from '../../base/loop-delay.ts';
import type { Rng } from '../../base/rng.ts';
import { addressAt } from '../core/strategy-services.ts';
import { createApi } from './api.ts';
import { LOOPBACK } from './authenticate.ts';
import { bootstrap } from './bootstrap.ts';
import { createKernel } from './kernel.ts';
import type { ControlConfig } from './kernel.ts';
import { createLocalApi } from './local-api.ts';
import { metricsText } from './metrics.ts';
import { openPki } from './pki.ts';
import { createPlainPaths } from './plain-paths.ts';
import { startServer } from './server.ts';
import { openStore } from './store.ts';
import { createTokens } from './tokens.ts';

export interface ControlOptions {
  dataDir: string;
  pkiDir: string;
  bindAddress: string;
  extraSans: readonly string[];
  /** File with the CA of the kubelets' serving certificates; absent: they are not verified. */
  kubeletCaFile?: string | undefined;
  durability: 'process' | 'power';
  config: ControlConfig;
  clock: Clock;
  rng: Rng;
  log: Log;
  /** The disk refused or an invariant broke: the process has to end. */
  fatal: (error: unknown) => void;
}

export interface Control extends AsyncDisposable {
  /** The port the API is served on. */
  readonly port: number;
  readonly caPem: string;
  /** A client in this process that speaks as the control plane itself, under its own name in managedFields. */
  api(userAgent: string): KubeApi;
}

const isAddress = (text: string): boolean => /^[\d.]+$/.test(text) || text.includes(':');

/** Brings up store, keys, API and HTTPS server; controllers are started on top by `main.ts`. */
export async function startControl(options: ControlOptions): Promise<Control> {
  const { config, clock, rng, log } = options;
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 });
  const names = [
    'localhost',
    'kubernetes',
    'kubernetes.default',
    'kubernetes.default.svc',
    `kubernetes.default.svc.${config.clusterDomain}`,
    ...options.extraSans.filter((san) => !isAddress(san)),
  ];
  const ips = new Set(['127.0.0.1', config.advertiseAddress, addressAt(config.serviceCidr, 1), ...options.extraSans.filter((san) => isAddress(san))]);
  if (options.bindAddress !== '0.0.0.0' && isAddress(options.bindAddress)) ips.add(options.bindAddress);
  const kubeletCaPem = options.kubeletCaFile === undefined ? undefined : await readFile(options.kubeletCaFile, 'utf8');
  const opened = await openPki({
    directory: options.pkiDir,
    nowMs: clock.nowMs(),
    dnsNames: names,
    ipAddresses: [...ips],
    server: `https://${config.advertiseAddress}:${config.securePort}`,
  });
  const pki = kubeletCaPem === undefined ? opened : { ...opened, kubeletCaPem };
  const store = openStore({ path: join(options.dataDir, 'state.db'), clock, durability: options.durability, fatal: options.fatal });
  const kernel = createKernel({ store, clock, rng, log, config });
  await bootstrap(kernel);
  store.compact();
  const tokens = createTokens(kernel, pki.accountKeyPem);
  let inFlight = (): number => 0;
  const loopDelay = watchLoopDelay();
  const plain = createPlainPaths(kernel, () => metricsText(store, loopDelay, inFlight), tokens);
  const api = createApi(kernel, tokens, plain);
  const server = await startServer({ kernel, api, tokens, pki, bindAddress: options.bindAddress, port: config.securePort, fatal: options.fatal });
  inFlight = () => server.inFlight;
  const closing = new AbortController();
  const warm = plain.warm(closing.signal);
  const expiry = expireEvents(kernel.clock, log, () => {
    const oldest = clock.nowMs() - EVENT_LIFE_MS;
    for (const entry of store.list('/events', '')) {
      const { metadata, lastTimestamp, series } = entry.object as {
        metadata: { creationTimestamp: string };
        lastTimestamp?: string;
        series?: { lastObservedTime?: string };
      };
      const last = Date.parse(series?.lastObservedTime ?? lastTimestamp ?? metadata.creationTimestamp);
      if (last < oldest) store.remove('/events', entry.namespace, entry.name, entry.object);
    }
  });
  return {
    port: server.port,
    caPem: pki.caPem,
    api: (userAgent) => createLocalApi(kernel, api, LOOPBACK, userAgent),
    async [Symbol.asyncDispose]() {
      closing.abort();
      await warm;
      expiry[Symbol.dispose]();
      loopDelay[Symbol.dispose]();
      await server[Symbol.asyncDispose]();
      store[Symbol.dispose]();
    },
  };
}

/** Events are kept for an hour after they were last seen. */
const EVENT_LIFE_MS = 3_600_000;
const EVENT_SWEEP_MS = 60_000;

function expireEvents(clock: Clock, log: Log, sweep: () => void): Disposable {
  let timer: Disposable | undefined;
  const arm = (): void => {
    timer = clock.after(EVENT_SWEEP_MS, () => {
      log.debug(4, 'sweeping events');
      sweep();
      arm();
    });
  };
  arm();
  return { [Symbol.dispose]: () => timer?.[Symbol.dispose]() };
}
