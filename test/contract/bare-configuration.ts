import { join } from 'node:path';

/** A KubeletConfiguration for an agent on a runtime in memory: no cgroups, no rules, anybody may ask. */
export const bareConfiguration = ({ folder, port, logs = join(folder, 'logs') }: { folder: string; port: number; logs?: string }) => ({
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  kind: 'KubeletConfiguration',
  address: '127.0.0.1',
  port,
  healthzPort: 0,
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
  authorization: { mode: 'AlwaysAllow' },
  cgroupsPerQOS: false,
  enforceNodeAllocatable: [],
  failCgroupV1: false,
  failSwapOn: false,
  makeIPTablesUtilChains: false,
  containerRuntimeEndpoint: `unix://${join(folder, 'cri.sock')}`,
  staticPodPath: join(folder, 'manifests'),
  podLogsDir: logs,
});
