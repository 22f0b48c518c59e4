import type { Obj } from './json.ts';
import { defaultPod, qosClassOf } from './defaults-pod.ts';
import { checkPodSpec, checkPodUpdate } from './validate-pod.ts';
import type { Strategy } from './strategy.ts';

export const PODS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  graceSeconds: 30,
  returnsDeleted: true,
  defaults: defaultPod,
  prepareCreate(pod) {
    pod['status'] = { phase: 'Pending', qosClass: qosClassOf(pod) };
    const gates = pod['spec'].schedulingGates ?? [];
    if (gates.length > 0) {
      pod['status'].conditions = [
        { type: 'PodScheduled', status: 'False', reason: 'SchedulingGated', message: 'Scheduling is blocked due to non-empty scheduling gates' },
      ];
    }
  },
  prepareUpdate(pod, old) {
    if (old['spec'].nodeName !== undefined && pod['spec'].nodeName === undefined) pod['spec'].nodeName = old['spec'].nodeName;
    pod['spec'].ephemeralContainers = old['spec'].ephemeralContainers;
    if (pod['spec'].ephemeralContainers === undefined) delete pod['spec'].ephemeralContainers;
  },
  validate: (pod, old) => (old === undefined ? checkPodSpec(pod['spec'], 'spec') : checkPodUpdate(pod, old)),
  prepareStatus(pod, old) {
    const status: Obj = (pod['status'] ??= {});
    // Writers that do not know observedGeneration do not take it away.
    status['observedGeneration'] ??= old['status']?.observedGeneration;
    if (status['observedGeneration'] === undefined) delete status['observedGeneration'];
    for (const condition of status['conditions'] ?? []) {
      const before = (old['status']?.conditions ?? []).find((item: Obj) => item['type'] === condition['type']);
      if (condition['observedGeneration'] === undefined && before?.observedGeneration !== undefined)
        condition['observedGeneration'] = before.observedGeneration;
    }
    // The single address and the list say the same thing; the single one wins for old writers.
    if (status['podIP'] !== undefined && status['podIPs'] === undefined) status['podIPs'] = [{ ip: status['podIP'] }];
    if (status['podIP'] === undefined && status['podIPs']?.[0] !== undefined) status['podIP'] = status['podIPs'][0].ip;
    if (status['hostIP'] !== undefined && status['hostIPs'] === undefined) status['hostIPs'] = [{ ip: status['hostIP'] }];
    status['qosClass'] ??= qosClassOf(pod);
  },
  fields: (pod) => ({
    'spec.nodeName': pod['spec']?.nodeName ?? '',
    'spec.restartPolicy': pod['spec']?.restartPolicy ?? '',
    'spec.schedulerName': pod['spec']?.schedulerName ?? '',
    'spec.serviceAccountName': pod['spec']?.serviceAccountName ?? '',
    'spec.hostNetwork': String(pod['spec']?.hostNetwork === true),
    'status.phase': pod['status']?.phase ?? '',
    'status.podIP': pod['status']?.podIP ?? '',
    'status.podIPs': pod['status']?.podIP ?? '',
    'status.nominatedNodeName': pod['status']?.nominatedNodeName ?? '',
  }),
};
