import { setTimeout as delay } from 'node:timers/promises';
import { X509Certificate } from 'node:crypto';
import type { Place } from '../../scripts/kind/place.ts';
import type { Saw } from './walk-steps.ts';
import { awaited, nodeReady, Recorder, type Cluster } from './walk-world.ts';
import { statusOf } from './walk-facts.ts';

const PKI = '/var/lib/kubelet/pki';
const CLIENT = `${PKI}/kubelet-client-current.pem`;
const SERVING = `${PKI}/kubelet-server-current.pem`;
const KUBECONFIG = '/etc/kubernetes/kubelet.conf';
const BOOTSTRAP = '/etc/kubernetes/bootstrap-kubelet.conf';
const CONFIG = '/var/lib/kubelet/config.yaml';
const MANAGER = '/etc/kubernetes/manifests/kube-controller-manager.yaml';
const MANAGER_NEW = '/etc/kubernetes/kube-controller-manager.new';
const SIGNING = '--cluster-signing-duration=3m';
const READY_MS = 180_000;
/** Rotation is due at 70 to 90 % of a life that is counted from five minutes before it was signed. */
const RENEWED_MS = 240_000;

async function certificateOf(place: Place, path: string): Promise<X509Certificate | null> {
  const { code, stdout } = await place.ask(['cat', path]);
  return code === 0 && stdout.includes('BEGIN CERTIFICATE') ? new X509Certificate(stdout) : null;
}

const told = (certificate: X509Certificate): string =>
  `${certificate.serialNumber.slice(0, 8)}… ${certificate.subject.replaceAll('\n', ', ')} until ${certificate.validToDate.toISOString().slice(0, 19)}`;

/** Puts a flag into the controller manager's manifest, or takes it out, and waits until the one that has it so answers. */
async function signFor(cluster: Cluster, isShort: boolean): Promise<void> {
  const { control } = cluster;
  // Made beside the folder: the kubelet reads whatever lies in it.
  const edit = isShort ? `s|^    - kube-controller-manager$|&\\n    - ${SIGNING}|` : `/${SIGNING}/d`;
  const line = `grep -q -- ${SIGNING} ${MANAGER} && has=true || has=false; [ $has = ${isShort} ] || { cp -p ${MANAGER} ${MANAGER_NEW}; sed '${edit}' ${MANAGER} >${MANAGER_NEW}; mv ${MANAGER_NEW} ${MANAGER}; }`;
  await control.inside(['sh', '-ec', line]);
  await awaited(cluster, 'the controller manager runs with it', READY_MS, async () => {
    const { stdout } = await control.ask([
      'sh',
      '-c',
      'cat /proc/$(pgrep -x kube-controller)/cmdline | tr "\\0" " "; curl -ksS -m 2 https://127.0.0.1:10257/healthz',
    ]);
    return stdout.includes(SIGNING) === isShort && stdout.endsWith('ok') ? true : null;
  });
}

/** The client certificate: got anew by TLS bootstrap from a signer that gives three minutes, and renewed before it ends. */
export async function clientRenewed(saw: Saw, cluster: Cluster, node: string): Promise<void> {
  const place = cluster.at(node);
  await signFor(cluster, true);
  try {
    const first = await bootstrapped(saw, cluster, place, node);
    await using record = new Recorder(cluster, { nodes: '/api/v1/nodes' });
    const second = await awaited(cluster, 'the certificate is another', RENEWED_MS, async () => {
      const now = await certificateOf(place, CLIENT);
      return now !== null && now.serialNumber !== first.serialNumber ? now : null;
    });
    saw.check(
      Date.now() < first.validToDate.getTime(),
      `renewed ${((first.validToDate.getTime() - Date.now()) / 1000).toFixed(0)} s before the first ends: ${told(second)}`,
    );
    await delay(Math.max(0, first.validToDate.getTime() - Date.now()) + 15_000, undefined, { signal: cluster.engine.signal });
    saw.check(Date.now() > first.validToDate.getTime() && (await nodeReady(cluster, node)), 'the first has ended, and the node is Ready');
    const lease = Date.parse(await cluster.k(['get', 'lease', node, '--namespace=kube-node-lease', '--output=jsonpath={.spec.renewTime}']));
    saw.check(lease > first.validToDate.getTime(), `its Lease was renewed ${((lease - first.validToDate.getTime()) / 1000).toFixed(0)} s after that`);
    const states = new Set(record.told.filter(({ object }) => object.metadata.name === node).map(({ object }) => statusOf(object, 'Ready')));
    saw.check([...states].join() === 'True', `Ready was ${[...states].join(', ')} throughout`);
    const requests = await cluster.k([
      'get',
      'csr',
      '--output=jsonpath={range .items[*]}{.spec.username} {.spec.signerName} {.status.conditions[*].type}{"\\n"}{end}',
    ]);
    const renewals = requests.split('\n').filter((line) => line.startsWith(`system:node:${node} kubernetes.io/kube-apiserver-client-kubelet`));
    saw.check(renewals.length > 0 && renewals.every((line) => line.includes('Approved')), `${renewals.length} requests of the node itself, approved`);
  } finally {
    await signFor(cluster, false);
  }
  const last = await awaited(cluster, 'a certificate of a year is there', RENEWED_MS, async () => {
    const now = await certificateOf(place, CLIENT);
    return now !== null && now.validToDate.getTime() - Date.now() > 86_400_000 ? now : null;
  });
  saw.check(await nodeReady(cluster, node), `the next is of the usual length: until ${last.validToDate.toISOString().slice(0, 10)}`);
}

/** Takes the node's credentials away and gives it a token: the kubelet asks for a certificate as at its first start. */
async function bootstrapped(saw: Saw, cluster: Cluster, place: Place, node: string): Promise<X509Certificate> {
  const token = (await cluster.control.inside(['kubeadm', 'token', 'create', '--ttl=15m'])).trim();
  const config = await place.inside(['cat', KUBECONFIG]);
  const bootstrap =
    config.replace(/users:[\s\S]*$/, '').replaceAll(/user: .*/g, 'user: bootstrap') + `users:\n- name: bootstrap\n  user:\n    token: ${token}\n`;
  await place.inside(['systemctl', 'stop', 'kubelet']);
  await place.inside(['sh', '-ec', `rm -f ${KUBECONFIG} ${PKI}/kubelet-client-*`]);
  await place.write(BOOTSTRAP, bootstrap, '0600');
  await place.inside(['systemctl', 'start', 'kubelet']);
  const first = await awaited(cluster, 'the bootstrap has given a certificate', READY_MS, () => certificateOf(place, CLIENT));
  await place.inside(['rm', '-f', BOOTSTRAP]);
  await awaited(cluster, `${node} is Ready`, READY_MS, async () => ((await nodeReady(cluster, node)) ? true : null));
  saw.check(/CN=system:node:/.test(first.subject), `TLS bootstrap: ${told(first)}`);
  saw.check((await place.inside(['grep', '-c', CLIENT, KUBECONFIG])).trim() !== '0', `${KUBECONFIG} names ${CLIENT}`);
  return first;
}

/** serverTLSBootstrap: the serving certificate is asked for, approved by hand as the field does, and served. */
export async function servingRenewed(saw: Saw, cluster: Cluster, node: string): Promise<void> {
  const place = cluster.at(node);
  const before = await place.inside(['cat', CONFIG]);
  await place.write(CONFIG, `${before.replace(/^serverTLSBootstrap:.*\n/m, '').trimEnd()}\nserverTLSBootstrap: true\n`);
  try {
    await place.inside(['systemctl', 'restart', 'kubelet']);
    const pending = await awaited(cluster, 'its request is there', READY_MS, async () => {
      const path =
        '{range .items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")]}{.metadata.name} {.spec.username} {.status.conditions[*].type}{"\\n"}{end}';
      const lines = (await cluster.k(['get', 'csr', `--output=jsonpath=${path}`])).split('\n').map((line) => line.trim());
      return lines.find((line) => line.endsWith(` system:node:${node}`))?.split(' ')[0] ?? null;
    });
    saw.note(`${pending} of system:node:${node} waits for an approval`);
    saw.note(await cluster.k(['certificate', 'approve', pending]));
    const got = await awaited(cluster, 'the certificate is there', READY_MS, () => certificateOf(place, SERVING));
    saw.check(got.issuer === 'CN=kubernetes', `${told(got)}, by ${got.issuer}, for ${got.subjectAltName ?? ''}`);
    const address = await cluster.k(['get', 'node', node, '--output=jsonpath={.status.addresses[?(@.type=="InternalIP")].address}']);
    const served = await awaited(cluster, 'it is served', READY_MS, async () => {
      const { code, stdout } = await cluster.control.ask([
        ...['curl', '-sS', '-m', '5', '--cacert', '/etc/kubernetes/pki/ca.crt', '--cert', '/etc/kubernetes/pki/apiserver-kubelet-client.crt'],
        ...['--key', '/etc/kubernetes/pki/apiserver-kubelet-client.key', `https://${address}:10250/healthz`],
      ]);
      return code === 0 ? stdout : null;
    });
    saw.check(served === 'ok', `https://${address}:10250/healthz, trusted by the cluster's CA: ${served}`);
  } finally {
    await place.write(CONFIG, before);
    await place.inside(['sh', '-c', `rm -f ${PKI}/kubelet-server-*`]);
    await place.inside(['systemctl', 'restart', 'kubelet']);
  }
  await awaited(cluster, `${node} is Ready`, READY_MS, async () => ((await nodeReady(cluster, node)) ? true : null));
}

/** kubeadm renews the control plane's certificates, whose parts are restarted as its words say; the worker stays Ready. */
export async function controlPlaneRenewed(saw: Saw, cluster: Cluster, node: string): Promise<void> {
  const { control } = cluster;
  const apiServer = '/etc/kubernetes/pki/apiserver.crt';
  const before = await certificateOf(control, apiServer);
  const text = await control.inside(['kubeadm', 'certs', 'renew', 'all']);
  const after = await certificateOf(control, apiServer);
  saw.check(
    before !== null && after !== null && before.serialNumber !== after.serialNumber,
    `kubeadm certs renew all: ${(text.match(/ renewed$/gm) ?? []).length} renewed`,
  );
  await control.inside([
    'sh',
    '-ec',
    'for c in $(crictl ps --quiet --name "kube-apiserver|kube-controller-manager|kube-scheduler|etcd"); do crictl stop --timeout 10 "$c"; done >/dev/null',
  ]);
  const served = await awaited(cluster, 'the API server serves the new one', READY_MS, async () => {
    const { stdout } = await control.ask(['sh', '-c', 'curl -ksS -m 3 https://127.0.0.1:6443/readyz']);
    return stdout.trimEnd().endsWith('ok') ? true : null;
  });
  const begunMs = Date.now();
  const lease = await awaited(cluster, 'the worker renews its Lease', READY_MS, async () => {
    const time = Date.parse(await cluster.k(['get', 'lease', node, '--namespace=kube-node-lease', '--output=jsonpath={.spec.renewTime}']));
    return time > begunMs ? time : null;
  });
  saw.check(served && lease > begunMs, `the API server was restarted, and ${node} renews its Lease with it`);
  await awaited(cluster, `${node} is Ready`, READY_MS, async () => ((await nodeReady(cluster, node)) ? true : null));
  const residual = await control.inside(['sh', '-c', 'kubeadm certs check-expiration 2>/dev/null | grep "^apiserver "']);
  saw.check(/36[34]d/.test(residual), residual.trim().replaceAll(/\s+/g, ' '));
  await awaited(cluster, 'the control plane is Ready', READY_MS, async () => ((await nodeReady(cluster, control.node)) ? true : null));
}
