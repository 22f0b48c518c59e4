import type { Obj } from './json.ts';
import { age, col, containerNames, durationText, ageOf, images, labelsText, name, selector, wide } from './table-cells.ts';
import type { Column } from './table-cells.ts';

const integer = (title: string, cell: (object: Obj) => number): Column => col(title, cell, 'integer');

const replicas: readonly Column[] = [
  name,
  integer('Desired', (object) => object['spec'].replicas ?? 0),
  integer('Current', (object) => object['status'].replicas ?? 0),
  integer('Ready', (object) => object['status'].readyReplicas ?? 0),
  age,
  containerNames,
  images,
];

function jobStatus(job: Obj): string {
  const has = (type: string): boolean => (job['status'].conditions ?? []).some((item: Obj) => item['type'] === type && item['status'] === 'True');
  if (has('Complete')) return 'Complete';
  if (has('Failed')) return 'Failed';
  if (job['metadata'].deletionTimestamp !== undefined) return 'Terminating';
  if (has('Suspended')) return 'Suspended';
  if (has('FailureTarget')) return 'FailureTarget';
  if (has('SuccessCriteriaMet')) return 'SuccessCriteriaMet';
  return 'Running';
}

export const WORKLOAD_TABLES: Record<string, readonly Column[]> = {
  'apps/deployments': [
    name,
    col('Ready', (object) => `${object['status'].readyReplicas ?? 0}/${object['spec'].replicas ?? 0}`),
    integer('Up-to-date', (object) => object['status'].updatedReplicas ?? 0),
    integer('Available', (object) => object['status'].availableReplicas ?? 0),
    age,
    containerNames,
    images,
    selector,
  ],
  'apps/replicasets': [...replicas, selector],
  '/replicationcontrollers': [...replicas, wide('Selector', (object) => labelsText(object['spec'].selector))],
  'apps/statefulsets': [name, col('Ready', (object) => `${object['status'].readyReplicas ?? 0}/${object['spec'].replicas ?? 0}`), age, containerNames, images],
  'apps/daemonsets': [
    name,
    integer('Desired', (object) => object['status'].desiredNumberScheduled ?? 0),
    integer('Current', (object) => object['status'].currentNumberScheduled ?? 0),
    integer('Ready', (object) => object['status'].numberReady ?? 0),
    integer('Up-to-date', (object) => object['status'].updatedNumberScheduled ?? 0),
    integer('Available', (object) => object['status'].numberAvailable ?? 0),
    col('Node Selector', (object) => labelsText(object['spec'].template?.spec?.nodeSelector)),
    age,
    containerNames,
    images,
    selector,
  ],
  'apps/controllerrevisions': [
    name,
    col('Controller', (object) => {
      const owner = (object['metadata'].ownerReferences ?? []).find((item: Obj) => item['controller'] === true);
      if (owner === undefined) return '<none>';
      const group = String(owner.apiVersion).includes('/') ? `.${String(owner.apiVersion).split('/')[0]}` : '';
      return `${String(owner.kind).toLowerCase()}${group}/${owner.name}`;
    }),
    integer('Revision', (object) => object['revision'] ?? 0),
    age,
  ],
  'batch/jobs': [
    name,
    col('Status', jobStatus),
    col('Completions', (object) => {
      const done = object['status'].succeeded ?? 0;
      if (object['spec'].completions !== undefined) return `${done}/${object['spec'].completions}`;
      const parallel = object['spec'].parallelism ?? 0;
      return parallel > 1 ? `${done}/1 of ${parallel}` : `${done}/1`;
    }),
    col('Duration', (object, nowMs) => {
      const { startTime, completionTime } = object['status'];
      if (startTime === undefined) return '';
      return completionTime === undefined ? ageOf(startTime, nowMs) : durationText(Date.parse(completionTime) - Date.parse(startTime));
    }),
    age,
    containerNames,
    images,
    selector,
  ],
  'batch/cronjobs': [
    name,
    col('Schedule', (object) => object['spec'].schedule ?? ''),
    col('Timezone', (object) => object['spec'].timeZone ?? '<none>'),
    col('Suspend', (object) => (object['spec'].suspend === true ? 'True' : 'False')),
    integer('Active', (object) => (object['status'].active ?? []).length),
    col('Last Schedule', (object, nowMs) => (object['status'].lastScheduleTime === undefined ? '<none>' : ageOf(object['status'].lastScheduleTime, nowMs))),
    age,
    containerNames,
    images,
    wide('Selector', () => '<none>'),
  ],
  'autoscaling/horizontalpodautoscalers': [
    name,
    col('Reference', (object) => `${object['spec'].scaleTargetRef?.kind}/${object['spec'].scaleTargetRef?.name}`),
    col('Targets', (object) => targets(object)),
    col('MinPods', (object) => String(object['spec'].minReplicas ?? '<unset>')),
    integer('MaxPods', (object) => object['spec'].maxReplicas ?? 0),
    integer('Replicas', (object) => object['status'].currentReplicas ?? 0),
    age,
  ],
  'policy/poddisruptionbudgets': [
    name,
    col('Min Available', (object) => String(object['spec'].minAvailable ?? 'N/A')),
    col('Max Unavailable', (object) => String(object['spec'].maxUnavailable ?? 'N/A')),
    integer('Allowed Disruptions', (object) => object['status'].disruptionsAllowed ?? 0),
    age,
  ],
};

function targets(scaler: Obj): string {
  const metrics: Obj[] = scaler['spec'].metrics ?? [];
  if (metrics.length === 0) return '<none>';
  return metrics
    .map((metric) => {
      if (metric['type'] !== 'Resource') return `<unknown>/${metric['type']}`;
      const { name: resource, target } = metric['resource'];
      const current = (scaler['status'].currentMetrics ?? []).find((item: Obj) => item['resource']?.name === resource)?.resource?.current;
      if (target.averageUtilization !== undefined)
        return `${resource}: ${current?.averageUtilization === undefined ? '<unknown>' : `${current.averageUtilization}%`}/${target.averageUtilization}%`;
      return `${resource}: ${current?.averageValue ?? '<unknown>'}/${target.averageValue}`;
    })
    .join(', ');
}
