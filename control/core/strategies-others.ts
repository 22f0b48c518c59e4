import type { Cause } from './failure.ts';
import { semanticallySame } from './json.ts';
import type { Obj } from './json.ts';
import { forbiddenField, required, wrong } from './names.ts';
import type { Strategy } from './strategy.ts';

const PLAIN_WITH_GENERATION: Strategy = { nameRule: 'subdomain', hasGeneration: true };

const SLICES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    object['endpoints'] ??= [];
    object['ports'] ??= [];
    for (const port of object['ports']) {
      port['name'] ??= '';
      port['protocol'] ??= 'TCP';
    }
  },
  validate(object, old) {
    const out: Cause[] = [];
    if ((object['addressType'] ?? '') === '') out.push(required('addressType'));
    if (old !== undefined && object['addressType'] !== old['addressType']) out.push(wrong('addressType', object['addressType'], 'field is immutable'));
    if ((object['endpoints'] ?? []).length > 1000)
      out.push({ reason: 'FieldValueTooMany', field: 'endpoints', message: `Too many: ${object['endpoints'].length}: must have at most 1000 items` });
    return out;
  },
};

const LEASES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  createOnUpdate: true,
  needsVersion: true,
  validate(object) {
    const seconds = object['spec']?.leaseDurationSeconds;
    return seconds !== undefined && seconds <= 0 ? [wrong('spec.leaseDurationSeconds', seconds, 'must be greater than 0')] : [];
  },
};

function checkRoleRef(object: Obj, old: Obj | undefined): Cause[] {
  const out: Cause[] = [];
  const ref: Obj = object['roleRef'] ?? {};
  if ((ref['name'] ?? '') === '') out.push(required('roleRef.name'));
  if (old !== undefined && !semanticallySame(ref, old['roleRef']))
    out.push(wrong('roleRef', { APIGroup: ref['apiGroup'], Kind: ref['kind'], Name: ref['name'] }, 'field is immutable'));
  return out;
}

const bindingDefaults = (object: Obj): void => {
  (object['roleRef'] ??= {}).apiGroup ??= 'rbac.authorization.k8s.io';
  for (const subject of object['subjects'] ?? []) {
    if (subject['kind'] !== 'ServiceAccount') subject['apiGroup'] ??= 'rbac.authorization.k8s.io';
    // A service account is of the core group, which is written by leaving the field out.
    if (subject['apiGroup'] === '') delete subject['apiGroup'];
  }
};

const BINDINGS: Strategy = { nameRule: 'path', hasGeneration: false, createOnUpdate: true, defaults: bindingDefaults, validate: checkRoleRef };
const ROLES: Strategy = {
  nameRule: 'path',
  hasGeneration: false,
  createOnUpdate: true,
  validate(object) {
    const out: Cause[] = [];
    (object['rules'] ?? []).forEach((rule: Obj, at: number) => {
      if ((rule['verbs'] ?? []).length === 0) out.push(required(`rules[${at}].verbs`, 'verbs must contain at least one value'));
      if ((rule['nonResourceURLs'] ?? []).length > 0) return;
      if ((rule['apiGroups'] ?? []).length === 0) out.push(required(`rules[${at}].apiGroups`, 'resource rules must supply at least one api group'));
      if ((rule['resources'] ?? []).length === 0) out.push(required(`rules[${at}].resources`, 'resource rules must supply at least one resource'));
    });
    return out;
  },
};

const POLICIES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    if ((spec['policyTypes'] ?? []).length === 0) spec['policyTypes'] = (spec['egress'] ?? []).length > 0 ? ['Ingress', 'Egress'] : ['Ingress'];
    for (const rule of [...(spec['ingress'] ?? []), ...(spec['egress'] ?? [])]) for (const port of rule['ports'] ?? []) port['protocol'] ??= 'TCP';
  },
};

const INGRESSES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  prepareCreate(object) {
    object['status'] = { loadBalancer: {} };
  },
};

const STORAGE_CLASSES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  returnsDeleted: true,
  defaults(object) {
    object['reclaimPolicy'] ??= 'Delete';
    object['volumeBindingMode'] ??= 'Immediate';
  },
  validate(object, old) {
    const out: Cause[] = [];
    if ((object['provisioner'] ?? '') === '') out.push(required('provisioner'));
    if (old === undefined) return out;
    for (const key of ['parameters', 'provisioner', 'reclaimPolicy', 'volumeBindingMode'])
      if (!semanticallySame(object[key], old[key])) out.push(forbiddenField(key, 'updates to ' + key + ' are forbidden.'));
    return out;
  },
};

const CSI_DRIVERS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  returnsDeleted: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['attachRequired'] ??= true;
    spec['podInfoOnMount'] ??= false;
    spec['storageCapacity'] ??= false;
    spec['fsGroupPolicy'] ??= 'ReadWriteOnceWithFSType';
    spec['volumeLifecycleModes'] ??= ['Persistent'];
    spec['requiresRepublish'] ??= false;
    spec['seLinuxMount'] ??= false;
  },
};

const PRIORITY_CLASSES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    object['preemptionPolicy'] ??= 'PreemptLowerPriority';
  },
  validate(object, old) {
    if (old !== undefined && object['value'] !== old['value']) return [forbiddenField('value', 'may not be changed in an update.')];
    const isSystem = String(object['metadata'].name).startsWith('system-');
    if (isSystem && !['system-cluster-critical', 'system-node-critical'].includes(object['metadata'].name))
      return [
        forbiddenField(
          'metadata.name',
          "priority class names with 'system-' prefix are reserved for system use only. error: the name is not one of the known system priority classes",
        ),
      ];
    if (!isSystem && (object['value'] ?? 0) > 1_000_000_000) return [forbiddenField('value', 'maximum allowed value of a user defined priority is 1000000000')];
    return [];
  },
};

const BUDGETS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  prepareCreate(object) {
    object['status'] = { disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0 };
  },
  validate(object) {
    const { minAvailable, maxUnavailable } = object['spec'] ?? {};
    return minAvailable !== undefined && maxUnavailable !== undefined
      ? [wrong('spec', object['spec'], 'minAvailable and maxUnavailable cannot be both set')]
      : [];
  },
};

const SIGNING_REQUESTS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  defaults(object) {
    (object['spec'] ??= {}).usages ??= ['digital signature', 'key encipherment'];
  },
  prepareCreate(object) {
    object['status'] = {};
  },
  fields: (object) => ({ 'spec.signerName': object['spec']?.signerName ?? '' }),
};

const DEFINITIONS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  prepareCreate(object) {
    object['status'] = {};
  },
};

export const OTHERS: Record<string, Strategy> = {
  'discovery.k8s.io/endpointslices': SLICES,
  'coordination.k8s.io/leases': LEASES,
  'rbac.authorization.k8s.io/roles': ROLES,
  'rbac.authorization.k8s.io/clusterroles': ROLES,
  'rbac.authorization.k8s.io/rolebindings': BINDINGS,
  'rbac.authorization.k8s.io/clusterrolebindings': BINDINGS,
  'networking.k8s.io/networkpolicies': POLICIES,
  'networking.k8s.io/ingresses': INGRESSES,
  'networking.k8s.io/ingressclasses': PLAIN_WITH_GENERATION,
  'storage.k8s.io/storageclasses': STORAGE_CLASSES,
  'storage.k8s.io/csidrivers': CSI_DRIVERS,
  'scheduling.k8s.io/priorityclasses': PRIORITY_CLASSES,
  'policy/poddisruptionbudgets': BUDGETS,
  'certificates.k8s.io/certificatesigningrequests': SIGNING_REQUESTS,
  'apiextensions.k8s.io/customresourcedefinitions': DEFINITIONS,
  'admissionregistration.k8s.io/validatingwebhookconfigurations': PLAIN_WITH_GENERATION,
  'admissionregistration.k8s.io/mutatingwebhookconfigurations': PLAIN_WITH_GENERATION,
  'admissionregistration.k8s.io/validatingadmissionpolicies': PLAIN_WITH_GENERATION,
  'admissionregistration.k8s.io/validatingadmissionpolicybindings': PLAIN_WITH_GENERATION,
  'flowcontrol.apiserver.k8s.io/flowschemas': PLAIN_WITH_GENERATION,
  'flowcontrol.apiserver.k8s.io/prioritylevelconfigurations': PLAIN_WITH_GENERATION,
};
