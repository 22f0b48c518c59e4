import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { ConfigContext } from './config-context.ts';
import { containerSecurity, namespacesOf, rootProblem, withGroups } from './security.ts';

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

type Own = Container['securityContext'];
type OfPod = Pod['spec']['securityContext'];
const context = { seccompDefault: false, rootDir: '/r', maskedPaths: ['/proc/kcore'] } as unknown as ConfigContext;
const podOf = (own: Own, ofPod: OfPod, spec: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { name: 'p', namespace: 'n', uid: 'u' },
  spec: { containers: [{ name: 'm', securityContext: own }], securityContext: ofPod, ...spec },
});
const security = (own: Own, ofPod: OfPod = {}, more: Partial<ConfigContext> = {}, image = { uid: 0 as number | null, username: '' }) => {
  const pod = podOf(own, ofPod);
  return containerSecurity({ ...context, ...more }, pod, pod.spec.containers[0]!, image, null);
};

test('a container’s own word counts before its pod’s, and some are the container’s alone', () => {
  const both = security(
    { runAsUser: 1, runAsGroup: 2, privileged: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: true, seLinuxOptions: { level: 's0' } },
    { runAsUser: 10, runAsGroup: 20, fsGroup: 30, supplementalGroups: [40], supplementalGroupsPolicy: 'Strict', seLinuxOptions: { level: 's1' } },
  );
  assert.deepEqual([both.runAsUser, both.runAsGroup, both.supplementalGroups], [{ value: 1 }, { value: 2 }, [30, 40]]);
  assert.deepEqual([both.supplementalGroupsPolicy, both.selinuxOptions], ['Strict', { level: 's0' }]);
  assert.deepEqual([both.privileged, both.readonlyRootfs, both.noNewPrivs], [true, true, false]);
  const none = security(undefined, undefined, {}, { uid: null, username: 'app' });
  assert.deepEqual([none.runAsUsername, none.runAsUser, none.noNewPrivs, none.supplementalGroupsPolicy], ['app', undefined, false, undefined]);
  assert.deepEqual([none.capabilities, none.supplementalGroups], [undefined, undefined]);
  assert.equal(security({ allowPrivilegeEscalation: false }).noNewPrivs, true);
  assert.deepEqual(security({ capabilities: { add: ['NET_ADMIN'] } }).capabilities, { addCapabilities: ['NET_ADMIN'], dropCapabilities: [] });
  assert.equal(security({}, { supplementalGroupsPolicy: 'Merge' }).supplementalGroupsPolicy, undefined, 'what runtimes take for granted');
});

test('procMount: what is hidden and read-only by default is neither when unmasked', () => {
  const usual = security({});
  assert.deepEqual([usual.maskedPaths, usual.readonlyPaths], [['/proc/kcore'], ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger']]);
  assert.deepEqual(security({ procMount: 'Default' }).maskedPaths, usual.maskedPaths);
  const unmasked = security({ procMount: 'Unmasked' });
  assert.deepEqual([unmasked.maskedPaths, unmasked.readonlyPaths], [[], []]);
});

test('seccomp and AppArmor profiles', () => {
  const seccomp = (own: Own, ofPod: OfPod = {}, seccompDefault = false): unknown => security(own, ofPod, { seccompDefault }).seccomp;
  const local = { type: 'Localhost', localhostProfile: 'a/b.json' };
  assert.deepEqual(seccomp({}), { profileType: 'Unconfined' });
  assert.deepEqual(seccomp({}, {}, true), { profileType: 'RuntimeDefault' });
  assert.deepEqual(seccomp({ seccompProfile: { type: 'Unconfined' } }, {}, true), { profileType: 'Unconfined' });
  assert.deepEqual(seccomp({}, { seccompProfile: local }), { profileType: 'Localhost', localhostRef: '/r/seccomp/a/b.json' });
  assert.deepEqual(seccomp({ seccompProfile: { type: 'RuntimeDefault' } }, { seccompProfile: local }), { profileType: 'RuntimeDefault' });
  const apparmor = (own: Own, ofPod: OfPod = {}, annotation?: string): unknown => {
    const pod = podOf(own, ofPod);
    if (annotation !== undefined) pod.metadata.annotations = { 'container.apparmor.security.beta.kubernetes.io/m': annotation };
    const { apparmor: profile, apparmorProfile } = containerSecurity(context, pod, pod.spec.containers[0]!, { uid: 0, username: '' }, null);
    return [profile, apparmorProfile];
  };
  assert.deepEqual(apparmor({}), [undefined, undefined]);
  assert.deepEqual(apparmor({ appArmorProfile: { type: 'RuntimeDefault' } }), [{ profileType: 'RuntimeDefault' }, 'runtime/default']);
  assert.deepEqual(apparmor({}, { appArmorProfile: { type: 'Localhost', localhostProfile: 'own' } }), [
    { profileType: 'Localhost', localhostRef: 'own' },
    'localhost/own',
  ]);
  assert.deepEqual(apparmor({ appArmorProfile: { type: 'Unconfined' } }, {}, 'localhost/old'), [{ profileType: 'Unconfined' }, 'unconfined']);
  assert.deepEqual(apparmor({}, {}, 'localhost/old'), [{ profileType: 'Localhost', localhostRef: 'old' }, 'localhost/old']);
});

test('namespaces: of the pod, of the machine, of a container that is looked into', () => {
  const of = (spec: Partial<Pod['spec']>): unknown => {
    const { network, ipc, pid } = namespacesOf(podOf({}, {}, spec));
    return [network, ipc, pid];
  };
  assert.deepEqual(of({}), ['POD', 'POD', 'CONTAINER']);
  assert.deepEqual(of({ hostNetwork: true, hostIPC: true, hostPID: true, shareProcessNamespace: false }), ['NODE', 'NODE', 'NODE']);
  assert.deepEqual(of({ shareProcessNamespace: true }), ['POD', 'POD', 'POD']);
  const looking = (spec: Partial<Pod['spec']>): unknown => {
    const pod = podOf({}, {}, spec);
    const { namespaceOptions } = containerSecurity(context, pod, pod.spec.containers[0]!, { uid: 0, username: '' }, 'target');
    return [namespaceOptions?.pid, namespaceOptions?.targetId];
  };
  assert.deepEqual(looking({}), ['TARGET', 'target']);
  assert.deepEqual(looking({ shareProcessNamespace: true }), ['POD', undefined]);
});

test('groups of volumes come behind the pod’s own, each once', () => {
  const groups = (ofPod: OfPod, more: number[]): unknown => withGroups(podOf({}, ofPod), more).spec.securityContext?.supplementalGroups;
  assert.deepEqual(groups({ supplementalGroups: [5, 6] }, [6, 7]), [5, 6, 7]);
  assert.deepEqual(groups(undefined, [7]), [7]);
  const pod = podOf({}, { supplementalGroups: [5] });
  assert.equal(withGroups(pod, [5]), pod);
});
