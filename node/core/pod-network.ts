/** What our pod network's daemon, which speaks as the service proxy, may read beside what upstream's role lets a proxy read. */
export function podNetworkObjects(): Record<string, unknown>[] {
  const name = 'nodelet:pod-network';
  const rbac = 'rbac.authorization.k8s.io';
  const verbs = ['list', 'watch'];
  return [
    {
      apiVersion: `${rbac}/v1`,
      kind: 'ClusterRole',
      metadata: { name },
      rules: [
        { apiGroups: [''], resources: ['namespaces', 'nodes', 'pods'], verbs },
        { apiGroups: ['networking.k8s.io'], resources: ['networkpolicies'], verbs },
        { apiGroups: ['policy.networking.k8s.io'], resources: ['clusternetworkpolicies'], verbs },
      ],
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name },
      roleRef: { apiGroup: rbac, kind: 'ClusterRole', name },
      subjects: [{ kind: 'User', name: 'system:kube-proxy', apiGroup: rbac }],
    },
  ];
}
