import { hostPort } from '../core/ip.ts';
import { OpError } from '../../base/errors.ts';
import { readKubeConfig, type KubeConfig } from '../../base/kubeapi/config.ts';

/** Where the kubelet puts what a pod needs to ask the API server. */
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/**
 * How to reach the API server, as kube-proxy finds it: the kubeconfig, with --master in place of its address; --master
 * alone; without either the way of a pod, by its service account.
 */
export async function reachApi(kubeconfig: string, master: string, env: Readonly<Record<string, string | undefined>>): Promise<KubeConfig> {
  if (kubeconfig !== '') {
    const config = await readKubeConfig(kubeconfig);
    return master === '' ? config : { ...config, server: master };
  }
  if (master !== '') return { server: master.replace(/\/$/, ''), namespace: 'default', insecure: false };
  const host = env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host === '' || port === '')
    throw new OpError('invalid', 'start the proxy', 'neither a kubeconfig nor the address of an API server is given, and this is no pod', {
      advice: 'Name one with --kubeconfig or --master, or as clientConnection.kubeconfig in the configuration.',
    });
  return {
    server: `https://${hostPort(host, Number(port))}`,
    namespace: 'default',
    insecure: false,
    ca: { file: `${ACCOUNT}/ca.crt` },
    tokenFile: `${ACCOUNT}/token`,
  };
}
