import assert from 'node:assert/strict';
import { test } from 'node:test';
import { planVolumes } from './volumes-plan.ts';

test('volumes of kinds that no kubelet has any more are refused, gitRepo in its own words', () => {
  const volumes = [
    { name: 'g', gitRepo: { repository: 'https://git.example/r' } },
    { name: 'f', flexVolume: { driver: 'd' } },
  ];
  const volumeMounts = volumes.map(({ name }) => ({ name, mountPath: `/${name}` }));
  const plans = planVolumes({ metadata: { name: 'p' }, spec: { containers: [{ name: 'c', volumeMounts }], volumes } }, {});
  assert.deepEqual(plans, [
    {
      kind: 'refused',
      name: 'g',
      message: 'git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`',
    },
    { kind: 'refused', name: 'f', message: 'flexVolume volumes are not supported by this node' },
  ]);
});
