import { podCidrsOf, serviceCidrsOf, type SetPlan } from './plan.ts';
import type { ServiceSpec } from './services.ts';

/** Components of a real control plane. */
export interface RealControlPlane {
  readonly etcd: string;
  readonly apiserver: string;
  readonly controllerManager: string;
  readonly scheduler: string;
}

/** Programs of a set that are not ours, by path; those that are absent are the distribution's, or not needed. */
export interface RealPrograms extends RealControlPlane {
  readonly kubelet?: string;
  readonly kubeProxy?: string;
  readonly kubectl?: string;
  readonly coredns?: string;
  readonly runc?: string;
  /** Folder of CNI plugins. */
  readonly cni?: string;
}

/** Megabytes a file, and files kept beside the one that is written: what an audit log may take. */
const AUDIT_MB = 100;
const AUDIT_FILES = 4;

/** Who did what to which object, without bodies; the wait for the request's body is not written apart. */
export function auditPolicy(): string {
  // What kubelets write about pods is kept whole: it is compared between kubelets.
  const written = {
    level: 'Request',
    userGroups: ['system:nodes'],
    verbs: ['create', 'update', 'patch', 'delete'],
    resources: [
      { group: '', resources: ['pods', 'pods/status', 'events'] },
      { group: 'events.k8s.io', resources: ['events'] },
    ],
  };
  const policy = { apiVersion: 'audit.k8s.io/v1', kind: 'Policy', omitStages: ['RequestReceived'], rules: [written, { level: 'Metadata' }] };
  return `${JSON.stringify(policy, null, 2)}\n`;
}

/** etcd, API server, controller manager and scheduler with the flags that kubeadm gives them, in the order in which they start. */
export function realControlPlane(set: SetPlan, real: RealControlPlane, { path, nice }: { path: string; nice: number }): ServiceSpec[] {
  const pki = `${set.state}/pki`;
  const plain = (name: string, argv: readonly string[]): ServiceSpec => ({
    name,
    argv,
    env: { PATH: path, HOME: '/root' },
    logFile: `${set.hub.dir}/log/${name}.log`,
    nice,
  });
  const ownKubeconfig = (name: string): string[] => {
    const file = `${set.state}/${name}.kubeconfig`;
    return [`--kubeconfig=${file}`, `--authentication-kubeconfig=${file}`, `--authorization-kubeconfig=${file}`];
  };
  const audit = [
    `--audit-policy-file=${set.hub.dir}/audit-policy.json`,
    `--audit-log-path=${set.hub.dir}/log/audit.log`,
    `--audit-log-maxsize=${AUDIT_MB}`,
    `--audit-log-maxbackup=${AUDIT_FILES}`,
    '--audit-log-mode=batch',
  ];
  return [
    plain('etcd', [
      real.etcd,
      ...['--data-dir', `${set.hub.dir}/etcd`, '--listen-client-urls', 'http://127.0.0.1:2379', '--advertise-client-urls', 'http://127.0.0.1:2379'],
      ...['--listen-peer-urls', 'http://127.0.0.1:2380', '--unsafe-no-fsync'],
    ]),
    plain('kube-apiserver', [
      real.apiserver,
      '--etcd-servers=http://127.0.0.1:2379',
      `--bind-address=${set.hub.ip}`,
      `--advertise-address=${set.hub.ip}`,
      '--secure-port=6443',
      `--tls-cert-file=${pki}/apiserver.crt`,
      `--tls-private-key-file=${pki}/apiserver.key`,
      `--client-ca-file=${pki}/ca.crt`,
      `--kubelet-client-certificate=${pki}/apiserver-kubelet-client.crt`,
      `--kubelet-client-key=${pki}/apiserver-kubelet-client.key`,
      `--kubelet-certificate-authority=${pki}/ca.crt`,
      '--kubelet-preferred-address-types=InternalIP,Hostname',
      `--requestheader-client-ca-file=${pki}/front-proxy-ca.crt`,
      '--requestheader-allowed-names=front-proxy-client',
      '--requestheader-username-headers=X-Remote-User',
      '--requestheader-group-headers=X-Remote-Group',
      '--requestheader-extra-headers-prefix=X-Remote-Extra-',
      `--proxy-client-cert-file=${pki}/front-proxy-client.crt`,
      `--proxy-client-key-file=${pki}/front-proxy-client.key`,
      '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
      `--service-account-key-file=${pki}/sa.pub`,
      `--service-account-signing-key-file=${pki}/sa.key`,
      `--service-cluster-ip-range=${serviceCidrsOf(set).join(',')}`,
      '--authorization-mode=Node,RBAC',
      '--enable-admission-plugins=NodeRestriction',
      '--enable-bootstrap-token-auth=true',
      '--allow-privileged=true',
      ...(set.audit ? audit : []),
    ]),
    plain('kube-controller-manager', [
      real.controllerManager,
      ...ownKubeconfig('controller-manager'),
      '--controllers=*,bootstrapsigner,tokencleaner',
      `--client-ca-file=${pki}/ca.crt`,
      `--requestheader-client-ca-file=${pki}/front-proxy-ca.crt`,
      `--service-account-private-key-file=${pki}/sa.key`,
      `--root-ca-file=${pki}/ca.crt`,
      `--cluster-signing-cert-file=${pki}/ca.crt`,
      `--cluster-signing-key-file=${pki}/ca.key`,
      '--use-service-account-credentials=true',
      // Made at its start; the default is a folder of the machine's.
      `--flex-volume-plugin-dir=${set.hub.dir}/volumeplugins`,
      // A node's range follows from its number and is in its CNI configuration before it registers; `up` writes it into the Node.
      '--allocate-node-cidrs=false',
      `--cluster-cidr=${podCidrsOf(set).join(',')}`,
      `--service-cluster-ip-range=${serviceCidrsOf(set).join(',')}`,
      '--leader-elect=false',
    ]),
    plain('kube-scheduler', [real.scheduler, ...ownKubeconfig('scheduler'), '--leader-elect=false']),
  ];
}
