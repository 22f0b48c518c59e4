import type { Container, Pod } from '../../../proto/kube/types.ts';

/** The text of a resize's Event: a sentence, then what the pod's containers are to have, as JSON in upstream's order of fields. */
export function resizeWords(sentence: string, pod: Pod, generation: number, error = ''): string {
  const summary = {
    ...listed('initContainers', pod.spec.initContainers),
    ...listed('containers', pod.spec.containers),
    generation,
    ...(error === '' ? {} : { error }),
  };
  return `${sentence}: ${goJson(summary)}`;
}

function listed(field: string, containers: readonly Container[] | undefined): object {
  if (containers === undefined || containers.length === 0) return {};
  return {
    [field]: containers.map(({ name, resources }) => ({
      name,
      resources: {
        ...(resources?.limits === undefined ? {} : { limits: sorted(resources.limits) }),
        ...(resources?.requests === undefined ? {} : { requests: sorted(resources.requests) }),
        ...(resources?.claims === undefined ? {} : { claims: resources.claims }),
      },
    })),
  };
}

function sorted(list: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(list).toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

/** Go's encoder writes these three so. */
function goJson(value: unknown): string {
  return JSON.stringify(value).replaceAll(/[<>&]/g, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);
}
