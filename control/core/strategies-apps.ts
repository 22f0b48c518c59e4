import type { Cause } from './failure.ts';
import { defaultTemplate } from './defaults-pod.ts';
import { isObject, semanticallySame } from './json.ts';
import type { Obj } from './json.ts';
import { checkLabels, forbiddenField, nameProblems, required, unsupported, wrong } from './names.ts';
import type { Strategy } from './strategy.ts';
import { checkPodSpec, nonNegative } from './validate-pod.ts';

/** metav1.LabelSelector against labels. An empty selector matches everything. */
export function selectorMatches(selector: Obj | undefined, labels: Obj | undefined): boolean {
  const has: Obj = labels ?? {};
  for (const [key, value] of Object.entries(selector?.['matchLabels'] ?? {})) if (has[key] !== value) return false;
  for (const { key, operator, values = [] } of (selector?.['matchExpressions'] ?? []) as Obj[]) {
    if (operator === 'In' && !(key in has && values.includes(has[key]))) return false;
    if (operator === 'NotIn' && key in has && values.includes(has[key])) return false;
    if (operator === 'Exists' && !(key in has)) return false;
    if (operator === 'DoesNotExist' && key in has) return false;
  }
  return true;
}

function isEmptySelector(selector: unknown): boolean {
  return !isObject(selector) || (Object.keys(selector['matchLabels'] ?? {}).length === 0 && (selector['matchExpressions'] ?? []).length === 0);
}

function checkSelector(object: Obj, what: string): Cause[] {
  const spec: Obj = object['spec'];
  const out: Cause[] = [];
  if (!isObject(spec['selector'])) out.push(required('spec.selector'));
  else {
    out.push(...checkLabels('spec.selector.matchLabels', spec['selector'].matchLabels));
    if (isEmptySelector(spec['selector'])) out.push(wrong('spec.selector', spec['selector'], `empty selector is invalid for ${what}`));
  }
  const labels: Obj | undefined = spec['template']?.metadata?.labels;
  // No selector at all matches nothing, an empty one everything.
  const isMatch = isObject(spec['selector']) && (isEmptySelector(spec['selector']) || selectorMatches(spec['selector'], labels));
  if (!isMatch) {
    out.push(wrong('spec.template.metadata.labels', labels, '`selector` does not match template `labels`'));
  }
  return out;
}

function checkTemplate(object: Obj, restart: readonly string[]): Cause[] {
  const template: Obj = object['spec'].template ?? {};
  const out: Cause[] = [...checkLabels('spec.template.labels', template['metadata']?.labels), ...checkPodSpec(template['spec'] ?? {}, 'spec.template.spec')];
  if (!restart.includes(template['spec']?.restartPolicy)) out.push(unsupported('spec.template.spec.restartPolicy', template['spec']?.restartPolicy, restart));
  return out;
}

function fixedSelector(object: Obj, old: Obj | undefined): Cause[] {
  if (old === undefined || semanticallySame(object['spec'].selector, old['spec'].selector)) return [];
  return [wrong('spec.selector', object['spec'].selector, 'field is immutable')];
}

const intOrPercent = (field: string, value: unknown): Cause[] => {
  if (typeof value === 'number') return nonNegative(field, value);
  if (typeof value === 'string' && !/^\d+%$/.test(value))
    return [
      wrong(
        field,
        value,
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
      ),
    ];
  return [];
};

const isZero = (value: unknown): boolean => value === 0 || value === '0%';

const DEPLOYMENTS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['replicas'] ??= 1;
    const strategy: Obj = (spec['strategy'] ??= {});
    strategy['type'] ??= 'RollingUpdate';
    if (strategy['type'] === 'RollingUpdate') {
      const rolling: Obj = (strategy['rollingUpdate'] ??= {});
      rolling['maxUnavailable'] ??= '25%';
      rolling['maxSurge'] ??= '25%';
    }
    spec['revisionHistoryLimit'] ??= 10;
    spec['progressDeadlineSeconds'] ??= 600;
    defaultTemplate((spec['template'] ??= {}));
  },
  prepareCreate(object) {
    object['status'] = {};
  },
  validate(object, old) {
    const spec: Obj = object['spec'];
    const out = [...nonNegative('spec.replicas', spec['replicas']), ...checkSelector(object, 'deployment'), ...checkTemplate(object, ['Always'])];
    const { type, rollingUpdate } = spec['strategy'];
    if (type === 'Recreate' && rollingUpdate !== undefined)
      out.push(forbiddenField('spec.strategy.rollingUpdate', "may not be specified when strategy `type` is 'Recreate'"));
    else if (type === 'RollingUpdate') {
      out.push(
        ...intOrPercent('spec.strategy.rollingUpdate.maxUnavailable', rollingUpdate.maxUnavailable),
        ...intOrPercent('spec.strategy.rollingUpdate.maxSurge', rollingUpdate.maxSurge),
      );
      if (isZero(rollingUpdate.maxUnavailable) && isZero(rollingUpdate.maxSurge))
        out.push(wrong('spec.strategy.rollingUpdate.maxUnavailable', rollingUpdate.maxUnavailable, 'may not be 0 when `maxSurge` is 0'));
    } else if (type !== 'Recreate') out.push(unsupported('spec.strategy.type', type, ['Recreate', 'RollingUpdate']));
    out.push(
      ...nonNegative('spec.minReadySeconds', spec['minReadySeconds']),
      ...nonNegative('spec.revisionHistoryLimit', spec['revisionHistoryLimit']),
      ...nonNegative('spec.progressDeadlineSeconds', spec['progressDeadlineSeconds']),
    );
    if (spec['progressDeadlineSeconds'] <= (spec['minReadySeconds'] ?? 0))
      out.push(wrong('spec.progressDeadlineSeconds', spec['progressDeadlineSeconds'], 'must be greater than minReadySeconds'));
    return [...out, ...fixedSelector(object, old)];
  },
};

const REPLICASETS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['replicas'] ??= 1;
    defaultTemplate(spec['template']);
  },
  prepareCreate(object) {
    object['status'] = { replicas: 0 };
  },
  validate: (object, old) => [
    ...nonNegative('spec.replicas', object['spec'].replicas),
    ...nonNegative('spec.minReadySeconds', object['spec'].minReadySeconds),
    ...checkSelector(object, 'deployment'),
    ...checkTemplate(object, ['Always']),
    ...fixedSelector(object, old),
  ],
  fields: (object) => ({ 'status.replicas': String(object['status']?.replicas ?? 0) }),
};

const STATEFULSETS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['podManagementPolicy'] ??= 'OrderedReady';
    const strategy: Obj = (spec['updateStrategy'] ??= {});
    if (strategy['type'] === undefined) {
      strategy['type'] = 'RollingUpdate';
      strategy['rollingUpdate'] ??= {};
    }
    if (strategy['type'] === 'RollingUpdate' && strategy['rollingUpdate'] !== undefined) {
      strategy['rollingUpdate'].partition ??= 0;
      strategy['rollingUpdate'].maxUnavailable ??= 1;
    }
    const retention: Obj = (spec['persistentVolumeClaimRetentionPolicy'] ??= {});
    retention['whenDeleted'] ??= 'Retain';
    retention['whenScaled'] ??= 'Retain';
    spec['replicas'] ??= 1;
    spec['revisionHistoryLimit'] ??= 10;
    spec['serviceName'] ??= '';
    defaultTemplate((spec['template'] ??= {}));
    for (const claim of spec['volumeClaimTemplates'] ?? []) {
      claim['apiVersion'] ??= 'v1';
      claim['kind'] ??= 'PersistentVolumeClaim';
      (claim['spec'] ??= {}).volumeMode ??= 'Filesystem';
      claim['status'] ??= { phase: 'Pending' };
    }
  },
  prepareCreate(object) {
    object['status'] = { replicas: 0, availableReplicas: 0 };
  },
  validate(object, old) {
    const spec: Obj = object['spec'];
    const out = [...nonNegative('spec.replicas', spec['replicas']), ...checkSelector(object, 'statefulset'), ...checkTemplate(object, ['Always'])];
    if (!['OrderedReady', 'Parallel'].includes(spec['podManagementPolicy']))
      out.push(wrong('spec.podManagementPolicy', spec['podManagementPolicy'], `must be 'OrderedReady' or 'Parallel'`));
    if (old === undefined) return out;
    if (spec['serviceName'] !== old['spec'].serviceName) return [...out, wrong('spec.serviceName', spec['serviceName'], 'field is immutable')];
    const changeable = [
      'replicas',
      'ordinals',
      'template',
      'updateStrategy',
      'revisionHistoryLimit',
      'persistentVolumeClaimRetentionPolicy',
      'minReadySeconds',
    ];
    const fixed = (of: Obj): Obj => Object.fromEntries(Object.entries(of['spec']).filter(([key]) => !changeable.includes(key)));
    if (!semanticallySame(fixed(object), fixed(old))) {
      out.push(
        forbiddenField(
          'spec',
          "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
      );
    }
    return out;
  },
};

const DAEMONSETS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    const strategy: Obj = (spec['updateStrategy'] ??= {});
    strategy['type'] ??= 'RollingUpdate';
    if (strategy['type'] === 'RollingUpdate') {
      const rolling: Obj = (strategy['rollingUpdate'] ??= {});
      rolling['maxUnavailable'] ??= 1;
      rolling['maxSurge'] ??= 0;
    }
    spec['revisionHistoryLimit'] ??= 10;
    defaultTemplate((spec['template'] ??= {}));
    object['metadata'].annotations = { 'deprecated.daemonset.template.generation': '1', ...object['metadata'].annotations };
  },
  prepareCreate(object) {
    object['status'] = { currentNumberScheduled: 0, numberMisscheduled: 0, desiredNumberScheduled: 0, numberReady: 0 };
  },
  prepareUpdate(object, old) {
    const key = 'deprecated.daemonset.template.generation';
    const had = Number(old['metadata'].annotations?.[key] ?? 1);
    object['metadata'].annotations[key] = String(semanticallySame(object['spec'].template, old['spec'].template) ? had : had + 1);
  },
  validate: (object, old) => [...checkSelector(object, 'daemonset'), ...checkTemplate(object, ['Always']), ...fixedSelector(object, old)],
};

const JOBS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    if (spec['completions'] === undefined && spec['parallelism'] === undefined) spec['completions'] = 1;
    spec['parallelism'] ??= 1;
    spec['backoffLimit'] ??= spec['backoffLimitPerIndex'] === undefined ? 6 : 2 ** 31 - 1;
    spec['completionMode'] ??= 'NonIndexed';
    spec['suspend'] ??= false;
    spec['podReplacementPolicy'] ??= spec['podFailurePolicy'] === undefined ? 'TerminatingOrFailed' : 'Failed';
    spec['manualSelector'] ??= false;
    const labels = spec['template']?.metadata?.labels;
    if (labels !== undefined && Object.keys(object['metadata'].labels ?? {}).length === 0) object['metadata'].labels = { ...labels };
    defaultTemplate((spec['template'] ??= {}));
  },
  prepareCreate(object) {
    object['status'] = {};
    const spec: Obj = object['spec'];
    if (spec['manualSelector'] === true) return;
    const { uid, name } = object['metadata'];
    const own = { 'batch.kubernetes.io/controller-uid': uid, 'batch.kubernetes.io/job-name': name, 'controller-uid': uid, 'job-name': name };
    const metadata: Obj = (spec['template'].metadata ??= {});
    metadata['labels'] = { ...metadata['labels'], ...own };
    spec['selector'] = { matchLabels: { 'batch.kubernetes.io/controller-uid': uid } };
    if (Object.keys(object['metadata'].labels ?? {}).length === 0) object['metadata'].labels = { ...metadata['labels'] };
  },
  validate(object, old) {
    const spec: Obj = object['spec'];
    const out = [...checkTemplate(object, ['OnFailure', 'Never'])].map((cause) =>
      cause.field === 'spec.template.spec.restartPolicy' && cause.reason === 'FieldValueNotSupported'
        ? { ...cause, reason: 'FieldValueRequired', message: 'Required value: valid values: "OnFailure", "Never"' }
        : cause,
    );
    for (const name of ['parallelism', 'completions', 'backoffLimit', 'activeDeadlineSeconds', 'ttlSecondsAfterFinished'])
      out.push(...nonNegative(`spec.${name}`, spec[name]));
    if (old === undefined) return out;
    for (const name of ['completions', 'selector', 'completionMode', 'podFailurePolicy', 'backoffLimitPerIndex', 'managedBy', 'successPolicy']) {
      if (!semanticallySame(spec[name], old['spec'][name])) out.push(wrong(`spec.${name}`, spec[name], 'field is immutable'));
    }
    const isSuspended = old['spec'].suspend === true;
    if (!isSuspended && !semanticallySame(spec['template'], old['spec'].template)) out.push(wrong('spec.template', spec['template'], 'field is immutable'));
    return out;
  },
  fields: (object) => ({ 'status.successful': String(object['status']?.succeeded ?? 0) }),
};

const CRONJOBS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['concurrencyPolicy'] ??= 'Allow';
    spec['suspend'] ??= false;
    spec['successfulJobsHistoryLimit'] ??= 3;
    spec['failedJobsHistoryLimit'] ??= 1;
    const job: Obj = (spec['jobTemplate'] ??= {});
    job['metadata'] ??= {};
    defaultTemplate(((job['spec'] ??= {}).template ??= {}));
  },
  prepareCreate(object) {
    object['status'] = {};
  },
  validate(object) {
    const spec: Obj = object['spec'];
    const out: Cause[] = [];
    if ((spec['schedule'] ?? '') === '') out.push(required('spec.schedule'));
    if (String(object['metadata'].name).length > 52) out.push(wrong('metadata.name', object['metadata'].name, 'must be no more than 52 characters'));
    if (!['Allow', 'Forbid', 'Replace'].includes(spec['concurrencyPolicy']))
      out.push(unsupported('spec.concurrencyPolicy', spec['concurrencyPolicy'], ['Allow', 'Forbid', 'Replace']));
    return out;
  },
};

const CONTROLLERS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['replicas'] ??= 1;
    const labels = spec['template']?.metadata?.labels;
    if (labels !== undefined) {
      if (Object.keys(spec['selector'] ?? {}).length === 0) spec['selector'] = { ...labels };
      if (Object.keys(object['metadata'].labels ?? {}).length === 0) object['metadata'].labels = { ...labels };
    }
    defaultTemplate(spec['template']);
  },
  prepareCreate(object) {
    object['status'] = { replicas: 0 };
  },
  validate: (object) => nonNegative('spec.replicas', object['spec'].replicas),
  fields: (object) => ({ 'status.replicas': String(object['status']?.replicas ?? 0) }),
};

const REVISIONS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  validate: (object, old) => (old !== undefined && !semanticallySame(object['data'], old['data']) ? [wrong('data', object['data'], 'field is immutable')] : []),
};

const AUTOSCALERS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  defaults(object) {
    (object['spec'] ??= {}).minReplicas ??= 1;
    if (object['apiVersion'] === 'autoscaling/v2')
      object['spec'].metrics ??= [{ type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 80 } } }];
  },
  prepareCreate(object) {
    object['status'] = { desiredReplicas: 0, currentMetrics: null };
    delete object['status'].currentMetrics;
  },
  validate: (object) =>
    nameProblems('subdomain', object['spec'].scaleTargetRef?.name ?? '').map((problem) =>
      wrong('spec.scaleTargetRef.name', object['spec'].scaleTargetRef?.name ?? '', problem),
    ),
};

export const APPS: Record<string, Strategy> = {
  'apps/deployments': DEPLOYMENTS,
  'apps/replicasets': REPLICASETS,
  'apps/statefulsets': STATEFULSETS,
  'apps/daemonsets': DAEMONSETS,
  'apps/controllerrevisions': REVISIONS,
  'batch/jobs': JOBS,
  'batch/cronjobs': CRONJOBS,
  '/replicationcontrollers': CONTROLLERS,
  'autoscaling/horizontalpodautoscalers': AUTOSCALERS,
};
