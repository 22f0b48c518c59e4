import { createPublicKey, randomInt } from 'node:crypto';
import { access, mkdir, readFile, writeFile } from 'node:fs/promises';
import { issueCertificate, selfSigned } from '../../base/x509.ts';
import { issueKubeconfig, issueServingCert, openPki } from '../../control/mod.ts';
import { parseToken, tokenText, type BootstrapToken } from '../core/kubeadm.ts';
import type { NodePlan, SetPlan } from '../core/plan.ts';

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;

/** Keys, certificates and kubeconfigs of a set, made or renewed where they are missing or spent. */
export async function writeCredentials(plan: SetPlan): Promise<void> {
  const pki = `${plan.state}/pki`;
  await mkdir(pki, { recursive: true, mode: 0o700 });
  await openPki({
    directory: pki,
    nowMs: Date.now(),
    dnsNames: ['localhost', 'kubernetes', 'kubernetes.default', 'kubernetes.default.svc', 'kubernetes.default.svc.cluster.local'],
    ipAddresses: ['127.0.0.1', plan.hub.ip, plan.serviceIp],
    server: plan.server,
  });
  await issue(plan, 'kubernetes-admin', ['system:masters'], `${plan.state}/admin.kubeconfig`);
  if (plan.controlPlane === 'real') {
    await writeFile(`${pki}/sa.pub`, createPublicKey(await readFile(`${pki}/sa.key`, 'utf8')).export({ type: 'spki', format: 'pem' }));
    await issue(plan, 'system:kube-controller-manager', [], `${plan.state}/controller-manager.kubeconfig`);
    await issue(plan, 'system:kube-scheduler', [], `${plan.state}/scheduler.kubeconfig`);
    await writeFrontProxy(pki);
  }
  const token = plan.join === 'token' ? await bootstrapToken(plan) : null;
  for (const node of plan.nodes) await writeNodeCredentials(plan, node, token);
}

async function issue(plan: SetPlan, user: string, groups: readonly string[], out: string): Promise<void> {
  await issueKubeconfig(`${plan.state}/pki`, { user, groups, server: plan.server, out });
}

async function writeNodeCredentials(plan: SetPlan, node: NodePlan, token: BootstrapToken | null): Promise<void> {
  await mkdir(node.dir, { recursive: true, mode: 0o755 });
  if (token === null) await issue(plan, `system:node:${node.name}`, ['system:nodes'], `${node.dir}/agent.kubeconfig`);
  else await writeFile(`${node.dir}/bootstrap.kubeconfig`, await bootstrapKubeconfig(plan, token), { mode: 0o600 });
  await issue(plan, 'system:kube-proxy', [], `${node.dir}/proxy.kubeconfig`);
  const serving = await issueServingCert(`${plan.state}/pki`, {
    cn: `system:node:${node.name}`,
    groups: ['system:nodes'],
    dns: [node.name],
    ips: [node.ip, '127.0.0.1'],
  });
  await writeFile(`${node.dir}/serving.key`, serving.privateKeyPem, { mode: 0o600 });
  await writeFile(`${node.dir}/serving.crt`, serving.certificatePem);
}

/** What the API server shows to aggregated API servers, signed by a CA of its own so that no other certificate passes for it. */
async function writeFrontProxy(pki: string): Promise<void> {
  const made = await access(`${pki}/front-proxy-client.key`).then(
    () => true,
    () => false,
  );
  if (made) return;
  const times = { notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + YEAR_MS };
  const ca = selfSigned({ subject: { commonName: 'front-proxy-ca' }, isCA: true, ...times });
  const client = issueCertificate({ subject: { commonName: 'front-proxy-client' }, usages: ['clientAuth'], ...times }, ca);
  await writeFile(`${pki}/front-proxy-ca.crt`, ca.certificatePem);
  await writeFile(`${pki}/front-proxy-client.crt`, client.certificatePem);
  await writeFile(`${pki}/front-proxy-client.key`, client.privateKeyPem, { mode: 0o600 });
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';
const letters = (count: number): string => Array.from({ length: count }, () => LETTERS[randomInt(LETTERS.length)]).join('');

/** The token with which nodes of this set join: the one that is there, or a new one. */
export async function bootstrapToken(plan: SetPlan): Promise<BootstrapToken> {
  const path = `${plan.state}/bootstrap-token`;
  const there = parseToken(await readFile(path, 'utf8').catch(() => ''));
  if (there !== null) return there;
  const token = { id: letters(6), secret: letters(16) };
  await writeFile(path, `${tokenText(token)}\n`, { mode: 0o600 });
  return token;
}

/** The set's CA certificate in base 64, as kubeconfigs have it. */
export async function caBase64(plan: SetPlan): Promise<string> {
  return (await readFile(`${plan.state}/pki/ca.crt`)).toString('base64');
}

async function bootstrapKubeconfig(plan: SetPlan, token: BootstrapToken): Promise<string> {
  const cluster = { server: plan.server, 'certificate-authority-data': await caBase64(plan) };
  return `${JSON.stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'nodelet', cluster }],
      users: [{ name: 'bootstrap', user: { token: tokenText(token) } }],
      contexts: [{ name: 'bootstrap', context: { cluster: 'nodelet', user: 'bootstrap' } }],
      'current-context': 'bootstrap',
    },
    null,
    2,
  )}\n`;
}
