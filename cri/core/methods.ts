import api from '../../proto/cri/api.json' with { type: 'json' };

interface MethodJson {
  readonly responseStream?: boolean;
}

const { nested } = api.nested.runtime.nested.v1;
const streams = new Map<string, boolean>(
  [nested.RuntimeService, nested.ImageService].flatMap(({ methods }) =>
    Object.entries(methods as Record<string, MethodJson>).map(([method, { responseStream }]): [string, boolean] => [method, responseStream === true]),
  ),
);

/** The methods of CRI v1. */
export const methodNames: readonly string[] = [...streams.keys()];

export function isStream(method: string): boolean {
  return streams.get(method) === true;
}

/** The field, number 1 in each, in which a method's answers carry a list's items. */
export const listFields: Readonly<Record<string, string>> = {
  ListPodSandbox: 'items',
  StreamPodSandboxes: 'podSandboxes',
  ListContainers: 'containers',
  StreamContainers: 'containers',
  ListContainerStats: 'stats',
  StreamContainerStats: 'containerStats',
  ListPodSandboxStats: 'stats',
  StreamPodSandboxStats: 'podSandboxStats',
  ListPodSandboxMetrics: 'podMetrics',
  StreamPodSandboxMetrics: 'podSandboxMetrics',
  ListImages: 'images',
  StreamImages: 'images',
};
