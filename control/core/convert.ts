import type { Obj } from './json.ts';

/** Between the version that is stored and another one that is served. Objects are not changed in place. */

export function toServed(group: string, version: string, object: Obj): Obj {
  if (group === 'events.k8s.io') return eventToNew(object);
  if (group === 'autoscaling' && version === 'v1') return scalerToOld(object);
  return object;
}

export function toStored(group: string, version: string, object: Obj): Obj {
  if (group === 'events.k8s.io') return eventToCore(object);
  if (group === 'autoscaling' && version === 'v1') return scalerToNew(object);
  return object;
}

function eventToNew(object: Obj): Obj {
  const { involvedObject, message, source, firstTimestamp, lastTimestamp, count, reportingComponent, ...rest } = object;
  return {
    ...rest,
    apiVersion: 'events.k8s.io/v1',
    eventTime: object['eventTime'] ?? null,
    note: message,
    regarding: involvedObject,
    reportingController: reportingComponent,
    deprecatedSource: source,
    deprecatedFirstTimestamp: firstTimestamp,
    deprecatedLastTimestamp: lastTimestamp,
    deprecatedCount: count,
  };
}

function eventToCore(object: Obj): Obj {
  const { regarding, note, deprecatedSource, deprecatedFirstTimestamp, deprecatedLastTimestamp, deprecatedCount, reportingController, ...rest } = object;
  const out: Obj = {
    ...rest,
    apiVersion: 'v1',
    involvedObject: regarding ?? {},
    message: note,
    source: deprecatedSource ?? {},
    firstTimestamp: deprecatedFirstTimestamp,
    lastTimestamp: deprecatedLastTimestamp,
    count: deprecatedCount,
    reportingComponent: reportingController,
  };
  for (const key of Object.keys(out)) if (out[key] === undefined) delete out[key];
  return out;
}

function scalerToOld(object: Obj): Obj {
  const { metrics, behavior: _, ...spec } = object['spec'] ?? {};
  const cpu = (metrics ?? []).find((metric: Obj) => metric['type'] === 'Resource' && metric['resource']?.name === 'cpu');
  return {
    ...object,
    apiVersion: 'autoscaling/v1',
    spec: { ...spec, targetCPUUtilizationPercentage: cpu?.resource?.target?.averageUtilization },
    status: { currentReplicas: object['status']?.currentReplicas ?? 0, desiredReplicas: object['status']?.desiredReplicas ?? 0 },
  };
}

function scalerToNew(object: Obj): Obj {
  const { targetCPUUtilizationPercentage: cpu, ...spec } = object['spec'] ?? {};
  const metrics = cpu === undefined ? undefined : [{ type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: cpu } } }];
  return { ...object, apiVersion: 'autoscaling/v2', spec: metrics === undefined ? spec : { ...spec, metrics } };
}
