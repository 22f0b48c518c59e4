import { hasCode, OpError } from '../../base/errors.ts';
import { readYaml } from '../../base/yaml.ts';
import type { Place } from './place.ts';
import { comeBack, LABEL, leave, planLeaving } from './proxy-set.ts';
import { until } from './until.ts';

/** How a node's kube-proxy pod was replaced; everything that taking it back needs. */
export interface ProxyChange {
  readonly mode: 'nftables' | 'iptables';
  /** The change to the cluster, as somebody would type it; it touches this node's pod alone. */
  readonly commands: readonly string[];
}

const HOME = '/var/lib/nodelet/proxy';
const UNIT = 'nodelet-proxy.service';
const PROGRAM = '/var/lib/nodelet/bin/kube-proxy';
const GONE_MS = 90_000;
const HEALTHY_MS = 60_000;
const SYNCED_MS = 15_000;
const TOKEN_HOURS = 24 * 365;

/** Starts our proxy as a unit of the node in the place of its kube-proxy pod; `remember` is called before anything is changed. */
export async function swapProxy(place: Place, mode: ProxyChange['mode'], remember: (change: ProxyChange) => Promise<void>): Promise<ProxyChange> {
  const doing = `swapping the proxy of ${place.node}`;
  const leaving = await planLeaving(place, doing);
  const commands = [...(leaving === null ? [] : [leaving.command]), `kubectl label node ${place.node} ${LABEL}=${mode}`];
  const change: ProxyChange = { mode, commands };
  await remember(change);
  await writeConfiguration(place, mode);
  if (leaving !== null) await leave(place, leaving.patch);
  await place.kubectl(['label', 'node', place.node, `${LABEL}=${mode}`, '--overwrite']);
  await podIs(place, 'gone', (text) => text === '');
  await place.inside(['systemctl', 'daemon-reload']);
  await place.inside(['systemctl', 'enable', '--now', UNIT]);
  await healthy(place);
  // A restore that did not come to its end may have left it.
  await place.ask(['sh', '-c', STAND_DOWN]);
  return change;
}

/**
 * Ends our proxy and lets the DaemonSet start its pod again. The rules stay until the other proxy has its own: one of
 * another mode takes the nftables table away before it has any (kube-proxy's cleanup of other modes at its start), so
 * that a copy of it stands in.
 */
export async function restoreProxy(place: Place): Promise<void> {
  await place.ask(['sh', '-c', STAND_IN]);
  await place.ask(['systemctl', 'disable', '--now', UNIT]);
  await place.inside(['rm', '-rf', `/etc/systemd/system/${UNIT}`, HOME, PROGRAM]);
  await place.inside(['systemctl', 'daemon-reload']);
  const labelled = await place.kubectl(['get', 'nodes', `--selector=${LABEL}`, '--output=name']);
  const others = labelled.split('\n').filter((name) => name !== '' && name !== `node/${place.node}`);
  // The template first: a pod made from the changed one would be replaced again at once.
  await comeBack(place, others);
  await place.kubectl(['label', 'node', place.node, `${LABEL}-`]);
  await podIs(place, 'ready', (text) => text === 'True');
  await synced(place);
  await place.ask(['sh', '-c', STAND_DOWN]);
}

const COPY = 'nodelet-handover';
const STAND_DOWN = `for family in ip ip6; do nft delete table $family ${COPY} 2>/dev/null; done; true`;
/** Chains of two tables at one hook do no harm: who translates an address first has it. */
const STAND_IN = `${STAND_DOWN}; for family in ip ip6; do nft list table $family kube-proxy 2>/dev/null | sed '1s/kube-proxy/${COPY}/'; done | nft -f -`;

/** Waits until the other proxy has written its rules, where it tells; its pod counts as ready before that. */
async function synced(place: Place): Promise<void> {
  const told = `curl -fsS -m 2 http://127.0.0.1:10249/metrics | grep '^kubeproxy_sync_proxy_rules_last_timestamp_seconds' | grep -v ' 0$'`;
  await until(place, `the kube-proxy of ${place.node} has written its rules`, { timeoutMs: SYNCED_MS }, async () => {
    const { code, stdout } = await place.ask(['sh', '-c', told]);
    return code === 0 && stdout !== '';
  }).catch((error: unknown) => {
    // Its metrics may be somewhere else, or nowhere.
    if (!hasCode(error, 'deadline')) throw error;
  });
}

async function podIs(place: Place, word: string, isWanted: (ready: string) => boolean): Promise<void> {
  const pods = ['get', 'pods', '--namespace=kube-system', '--selector=k8s-app=kube-proxy', `--field-selector=spec.nodeName=${place.node}`];
  const path = '--output=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}';
  await until(place, `the kube-proxy pod of ${place.node} is ${word}`, { timeoutMs: GONE_MS }, async () =>
    isWanted((await place.kubectl([...pods, path])).trim()),
  );
}

async function healthy(place: Place): Promise<void> {
  const advice = `see: docker exec ${place.node} journalctl --unit=${UNIT}`;
  await until(place, `our proxy on ${place.node} is healthy`, { timeoutMs: HEALTHY_MS, advice }, async () => {
    const { code } = await place.ask(['curl', '-fsS', '-m', '2', '-o', '/dev/null', 'http://127.0.0.1:10256/healthz']);
    return code === 0;
  });
}

interface ProxyConfiguration {
  readonly clientConnection?: object;
}

/** The cluster's own configuration of kube-proxy, with this node's name and a token of kube-proxy's account. */
async function writeConfiguration(place: Place, mode: ProxyChange['mode']): Promise<void> {
  const map = JSON.parse(await place.kubectl(['get', '--namespace=kube-system', 'configmap/kube-proxy', '--output=json'])) as { data: Record<string, string> };
  const config = (await readYaml(map.data['config.conf'] ?? '', 'configmap/kube-proxy')) as ProxyConfiguration;
  const theirs = (await readYaml(map.data['kubeconfig.conf'] ?? '', 'configmap/kube-proxy')) as { clusters?: { cluster?: { server?: string } }[] };
  const server = theirs.clusters?.[0]?.cluster?.server;
  if (server === undefined) throw new OpError('unsupported', 'reading the configuration of kube-proxy', 'its kubeconfig names no server');
  const token = (await place.kubectl(['create', 'token', 'kube-proxy', '--namespace=kube-system', `--duration=${TOKEN_HOURS}h`])).trim();
  await place.write(
    `${HOME}/kubeconfig`,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server, 'certificate-authority': '/etc/kubernetes/pki/ca.crt' } }],
      users: [{ name: 'u', user: { token } }],
      contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'c',
    }),
    '0600',
  );
  const ours = { ...config, mode, hostnameOverride: place.node, clientConnection: { ...config.clientConnection, kubeconfig: `${HOME}/kubeconfig` } };
  await place.write(`${HOME}/config.yaml`, `${JSON.stringify(ours, null, 2)}\n`);
  await place.inside(['ln', '-sfn', 'kubelet', PROGRAM]);
  await place.write(
    `/etc/systemd/system/${UNIT}`,
    `[Unit]\nDescription=nodelet in the place of kube-proxy\nAfter=network.target\n\n[Service]\nExecStart=${PROGRAM} --config=${HOME}/config.yaml\nRestart=always\nRestartSec=1\n\n[Install]\nWantedBy=multi-user.target\n`,
  );
}
