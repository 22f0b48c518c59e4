import { forbidden } from './failure.ts';
import type { User } from './authorize.ts';
import type { Obj } from './json.ts';
import type { Surroundings } from './strategy.ts';

const PODS = { group: '', resource: 'pods' };
const MIRROR = 'kubernetes.io/config.mirror';
const TOKEN_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';
/** A bound token lives an hour; the odd seconds tell such tokens from ones asked for by hand. */
const TOKEN_SECONDS = 3607;

/** Service account and its token volume, priority, runtime class, tolerations for short troubles of a node. */
export function admitPod(pod: Obj, _user: User, around: Surroundings, _warnings: string[]): void {
  const isMirror = pod['metadata'].annotations?.[MIRROR] !== undefined;
  if (isMirror) checkMirror(pod);
  else bindAccount(pod, around);
  setPriority(pod, around);
  setRuntimeClass(pod, around);
  tolerateTroubles(pod);
  // Extended resources and ports need nothing here; quota and limits follow.
}

function checkMirror(pod: Obj): void {
  const name = pod['metadata'].name ?? '';
  if ((pod['spec'].serviceAccountName ?? '') !== '') throw forbidden(PODS, name, 'a mirror pod may not reference service accounts');
}

function bindAccount(pod: Obj, around: Surroundings): void {
  const spec: Obj = pod['spec'];
  const { namespace } = pod['metadata'];
  if ((spec['serviceAccountName'] ?? '') === '') spec['serviceAccountName'] = (spec['serviceAccount'] ?? '') === '' ? 'default' : spec['serviceAccount'];
  spec['serviceAccount'] = spec['serviceAccountName'];
  const account = around.view.get('', 'serviceaccounts', namespace, spec['serviceAccountName']);
  if (account === undefined) {
    throw forbidden(
      PODS,
      pod['metadata'].name ?? '',
      `error looking up service account ${namespace}/${spec['serviceAccountName']}: serviceaccount "${spec['serviceAccountName']}" not found`,
    );
  }
  const isMounted = spec['automountServiceAccountToken'] ?? account['automountServiceAccountToken'] ?? true;
  if (isMounted) mountToken(spec, around);
  if ((spec['imagePullSecrets'] ?? []).length === 0 && (account['imagePullSecrets'] ?? []).length > 0)
    spec['imagePullSecrets'] = account['imagePullSecrets'].map((ref: Obj) => ({ name: ref['name'] }));
}

function mountToken(spec: Obj, around: Surroundings): void {
  const volumes: Obj[] = spec['volumes'] ?? [];
  let volume = volumes.find((item) => String(item['name']).startsWith('kube-api-access-') && item['projected'] !== undefined)?.['name'];
  const isNew = volume === undefined;
  volume ??= `kube-api-access-${around.suffix(5)}`;
  let isNeeded = false;
  for (const container of [...(spec['initContainers'] ?? []), ...(spec['containers'] ?? [])] as Obj[]) {
    const mounts: Obj[] = container['volumeMounts'] ?? [];
    if (mounts.some((mount) => mount['mountPath'] === TOKEN_DIRECTORY)) continue;
    container['volumeMounts'] = [...mounts, { name: volume, readOnly: true, mountPath: TOKEN_DIRECTORY }];
    isNeeded = true;
  }
  if (!isNeeded || !isNew) return;
  spec['volumes'] = [
    ...volumes,
    {
      name: volume,
      projected: {
        sources: [
          { serviceAccountToken: { expirationSeconds: TOKEN_SECONDS, path: 'token' } },
          { configMap: { name: 'kube-root-ca.crt', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
          { downwardAPI: { items: [{ path: 'namespace', fieldRef: { apiVersion: 'v1', fieldPath: 'metadata.namespace' } }] } },
        ],
        defaultMode: 420,
      },
    },
  ];
}

function setPriority(pod: Obj, around: Surroundings): void {
  const spec: Obj = pod['spec'];
  const classes = [...around.view.list('scheduling.k8s.io', 'priorityclasses')];
  let name: string = spec['priorityClassName'] ?? '';
  let found = classes.find((item) => item['metadata'].name === name);
  if (name === '') {
    found = classes.filter((item) => item['globalDefault'] === true).toSorted((a, b) => a['value'] - b['value'])[0];
    name = found?.['metadata'].name ?? '';
    if (name !== '') spec['priorityClassName'] = name;
  } else if (found === undefined) throw forbidden(PODS, pod['metadata'].name ?? '', `no PriorityClass with name ${name} was found`);
  const value = found?.['value'] ?? 0;
  if (spec['priority'] !== undefined && spec['priority'] !== value) {
    throw forbidden(
      PODS,
      pod['metadata'].name ?? '',
      `the integer value of priority (${spec['priority']}) must not be provided in pod spec; priority admission controller computed ${value} from the given PriorityClass name`,
    );
  }
  spec['priority'] = value;
  spec['preemptionPolicy'] ??= found?.['preemptionPolicy'] ?? 'PreemptLowerPriority';
}

function setRuntimeClass(pod: Obj, around: Surroundings): void {
  const name = pod['spec'].runtimeClassName;
  if (name === undefined) return;
  const found = around.view.get('node.k8s.io', 'runtimeclasses', '', name);
  if (found === undefined) throw forbidden(PODS, pod['metadata'].name ?? '', `pod rejected: RuntimeClass "${name}" not found`);
  if (found['overhead']?.podFixed !== undefined) pod['spec'].overhead = found['overhead'].podFixed;
  const scheduling: Obj = found['scheduling'] ?? {};
  if (scheduling['nodeSelector'] !== undefined) pod['spec'].nodeSelector = { ...pod['spec'].nodeSelector, ...scheduling['nodeSelector'] };
  if (scheduling['tolerations'] !== undefined) pod['spec'].tolerations = [...(pod['spec'].tolerations ?? []), ...scheduling['tolerations']];
}

function tolerateTroubles(pod: Obj): void {
  const tolerations: Obj[] = pod['spec'].tolerations ?? [];
  const missing = ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable'].filter(
    (key) =>
      !tolerations.some((item) => (item['key'] === key || (item['key'] ?? '') === '') && ((item['effect'] ?? '') === '' || item['effect'] === 'NoExecute')),
  );
  if (missing.length === 0) return;
  pod['spec'].tolerations = [...tolerations, ...missing.map((key) => ({ key, operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 300 }))];
}
