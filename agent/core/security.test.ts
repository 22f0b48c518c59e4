import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { rootProblem } from './security.ts';

function problem(
  own: Container['securityContext'],
  image: { uid: number | null; username: string },
  ofPod: Pod['spec']['securityContext'] = {},
): string | null {
  const container: Container = { name: 'm', securityContext: own };
  return rootProblem({ metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [container], securityContext: ofPod } }, container, image);
}

test('a container that must not be root is refused with the true reason', () => {
  const nobody = { uid: 0, username: '' };
  assert.match(problem({ runAsNonRoot: true }, nobody) ?? '', /image will run as root/);
  assert.match(problem({ runAsNonRoot: true }, { uid: null, username: 'app' }) ?? '', /non-numeric user \(app\), cannot verify/);
  assert.equal(problem({ runAsNonRoot: true }, { uid: 1000, username: '' }), null);
  assert.equal(problem({ runAsNonRoot: true, runAsUser: 1000 }, { uid: null, username: 'app' }), null);
  assert.match(problem({ runAsNonRoot: true, runAsUser: 0 }, nobody) ?? '', /breaks non-root policy/);
  assert.equal(problem({ runAsNonRoot: true }, nobody, { runAsUser: 1000 }), null);
  assert.equal(problem({}, nobody), null);
});
