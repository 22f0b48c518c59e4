import type { ImageSpecInput, MountInput, UserNamespaceInput } from '../../proto/cri/types.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { containerConfig, logPathOf, podLogDir } from '../core/container-config.ts';
import { findContainer, keyOf } from '../core/containers.ts';
import { graceSecondsOf } from '../core/plan-kill.ts';
import { withGrants } from '../core/resources/apply.ts';
import type { ContainerGrants } from '../core/resources/apply.ts';
import { rootProblem, withGroups } from '../core/security.ts';
import type { ImageUser } from '../core/security.ts';
import { podIPsOf } from '../core/status.ts';
import type { Step } from '../core/step.ts';
import type { EventText } from '../core/types.ts';
import type { ContainerDevice, ContainerMount } from '../seams.ts';
import { OpError } from '../../base/errors.ts';
import { failureWords, ignoreMissing } from './cri.ts';
import { imageUserOf } from './images.ts';
import type { ImageOutcome } from './images.ts';
import { killContainers } from './kill.ts';
import type { OpenSandbox, RunContext, StartFailure, StepDeps } from './step-types.ts';
import { wholePath } from './files.ts';

type StartStep = Extract<Step, { kind: 'start-container' }>;

/** Pull, create, start, postStart; null when the container runs. Expected failures come back as waiting reasons. */
export async function startContainer(
  deps: StepDeps,
  run: RunContext,
  step: StartStep,
  sandbox: OpenSandbox,
  images: ImageVolumes,
  signal: AbortSignal,
): Promise<StartFailure | null> {
  const { pod, tell } = run;
  const container = findContainer(pod.spec, step.name)?.container;
  if (container === undefined) return { name: step.name, reason: 'CreateContainerConfigError', message: `container ${step.name} is not in the pod` };
  const fail = (reason: string, message: string, eventText = `Error: ${message}`): StartFailure => {
    tell({ type: 'Warning', reason: 'Failed', message: eventText, container: container.name });
    return { name: container.name, reason, message };
  };

  const image = await deps.images.ensure({ pod, container, sandboxConfig: sandbox.config, runtimeHandler: imageHandler(deps, sandbox), tell }, signal);
  if (!image.ok) {
    if (image.isSaid !== true) fail(image.reason, image.message, `Error: ${image.reason}`);
    return { name: container.name, reason: image.reason, message: image.message };
  }

  const logDir = `${podLogDir(deps.context, pod)}/${container.name}`;
  const attempt = step.attempt ?? (await deps.files.nextAttempt(logDir));
  if (step.targetId === '') return fail('CreateContainerConfigError', `unable to find target container ${targetName(pod, step.name)}`);
  const made = await prepare(deps, run, container, sandbox, { image, images }, signal);
  if (!made.ok) return fail(made.reason, made.message);
  signal.throwIfAborted();

  try {
    await deps.resizes.make(pod, container);
  } catch (error) {
    return fail('CreateContainerConfigError', failureWords(error));
  }
  const { targetId, replaces } = step;
  const ran = await createAndStart(deps, run, { container, attempt, logDir, targetId, replaces, imageRef: image.imageRef, sandbox, made, fail }, signal);
  if (typeof ran !== 'string') return ran;
  const { namespace, name } = keyOf(pod);
  await deps.files.linkLog(
    deps.containersLogDir,
    `${name}_${namespace}_${container.name}-${ran}.log`,
    `${podLogDir(deps.context, pod)}/${logPathOf(container.name, attempt)}`,
  );
  return postStart(deps, run, container, ran, sandbox, signal);
}

interface Making {
  readonly container: Container;
  readonly attempt: number;
  readonly logDir: string;
  readonly replaces: readonly string[];
  readonly targetId: string | null;
  readonly imageRef: string;
  readonly sandbox: OpenSandbox;
  readonly made: Extract<Prepared, { ok: true }>;
  readonly fail: (reason: string, message: string) => StartFailure;
}

/** The part that is the runtime's work, in its turn; answers the container's id. */
async function createAndStart(deps: StepDeps, run: RunContext, making: Making, signal: AbortSignal): Promise<string | StartFailure> {
  const { cri, timeoutMs } = deps;
  const { pod, tell } = run;
  const { container, made, sandbox, fail } = making;
  using _turn = await deps.lines.starts.take(run.place, signal);
  let containerId: string;
  try {
    await deps.files.mkdir(making.logDir);
    // What came before may have taken its time, and the pod may have ended meanwhile.
    signal.throwIfAborted();
    const plain = containerConfig(deps.context, {
      pod: withGroups(pod, deps.volumes.groupsOf?.(keyOf(pod).uid) ?? []),
      container,
      attempt: making.attempt,
      imageRef: making.imageRef,
      imageUser: made.user,
      env: made.env,
      mounts: made.mounts,
      devices: made.devices,
      cdiDevices: made.cdiDevices,
      targetId: making.targetId,
      ...usersOf(sandbox),
    });
    const config = withGrants(plain, made.grants);
    ({ containerId } = await cri.runtime.createContainer({ podSandboxId: sandbox.id, config, sandboxConfig: sandbox.config }, { timeoutMs }));
  } catch (error) {
    signal.throwIfAborted();
    return fail('CreateContainerError', failureWords(error));
  }
  tell({ type: 'Normal', reason: 'Created', message: 'Container created', container: container.name });
  deps.grants?.made(pod, container, containerId);
  // A pod that has begun to end starts nothing.
  signal.throwIfAborted();
  let runs: string | undefined;
  try {
    for (const other of making.replaces) if (!(await givesWay(deps, other, containerId))) runs = other;
    if (runs === undefined) await cri.runtime.startContainer({ containerId }, { timeoutMs });
  } catch (error) {
    return fail('RunContainerError', failureWords(error));
  }
  if (runs !== undefined) throw new OpError('conflict', `replace container ${runs}`, 'it was started after all');
  tell({ type: 'Normal', reason: 'Started', message: 'Container started', container: container.name });
  return containerId;
}

/**
 * Takes away `other`, which was made before and not started. When a call of a process that was killed has started it
 * meanwhile, it is what runs: the new one goes instead, and the pod is looked at again. One that has ended stays to tell of it.
 */
async function givesWay({ cri, timeoutMs }: StepDeps, other: string, containerId: string): Promise<boolean> {
  let state = '';
  await ignoreMissing(cri.runtime.containerStatus({ containerId: other }, { timeoutMs }).then(({ status }) => (state = status?.state ?? '')));
  const runs = state !== '' && state !== 'CONTAINER_CREATED' && state !== 'CONTAINER_EXITED';
  if (runs) await ignoreMissing(cri.runtime.removeContainer({ containerId }, { timeoutMs }));
  else if (state === 'CONTAINER_CREATED') await ignoreMissing(cri.runtime.removeContainer({ containerId: other }, { timeoutMs }));
  return !runs;
}

/** The hook runs beside the container's own start; when it fails the container is stopped. */
async function postStart(
  deps: StepDeps,
  run: RunContext,
  container: Container,
  containerId: string,
  sandbox: OpenSandbox,
  signal: AbortSignal,
): Promise<StartFailure | null> {
  const hook = container.lifecycle?.postStart;
  if (hook === undefined) return null;
  const { pod, tell } = run;
  const podIPs = podIPsOf(pod, sandbox.ips, deps.node.hostIPs());
  const outcome = await deps.hooks.run(pod, container, containerId, podIPs, hook, 0, signal);
  if (outcome.ok) return null;
  signal.throwIfAborted();
  deps.log.warn('Failed to execute PostStartHook', {
    pod: `${pod.metadata.namespace}/${pod.metadata.name}`,
    containerName: container.name,
    message: outcome.message,
  });
  tell({ type: 'Warning', reason: 'FailedPostStartHook', message: 'PostStartHook failed', container: container.name });
  const kill = {
    containerId,
    name: container.name,
    graceSeconds: graceSecondsOf(pod, container, 'post-start'),
    after: [],
    preStop: container.lifecycle?.preStop !== undefined,
    message: 'FailedPostStartHook',
  };
  try {
    await killContainers(deps, { pod, podIPs, tell, preStopBegun: run.preStopBegun }, [kill], signal);
  } catch (error) {
    deps.log.warn('Failed to kill container', { containerName: container.name, err: failureWords(error) });
  }
  return { name: container.name, reason: 'PostStartHookError', message: outcome.message };
}

type Prepared =
  | {
      ok: true;
      env: readonly { name: string; value: string }[];
      mounts: readonly MountInput[];
      devices: readonly ContainerDevice[];
      cdiDevices: readonly string[];
      user: ImageUser;
      grants: ContainerGrants | null;
    }
  | { ok: false; reason: string; message: string };

/** Everything of the configuration that has to be looked up. */
async function prepare(
  deps: StepDeps,
  run: RunContext,
  container: Container,
  sandbox: OpenSandbox,
  { image: ready, images }: { readonly image: Extract<ImageOutcome, { ok: true }>; readonly images: ImageVolumes },
  signal: AbortSignal,
): Promise<Prepared> {
  const { pod } = run;
  const podIPs = podIPsOf(pod, sandbox.ips, deps.node.hostIPs());
  try {
    const granted = (await deps.grants?.forContainer(pod, container, signal)) ?? { ok: true, grants: null };
    if (!granted.ok) return { ok: false, reason: 'CreateContainerConfigError', message: granted.message };
    const { grants } = granted;
    const env = await deps.environment(pod, container, podIPs, signal);
    if (!env.ok) return { ok: false, reason: 'CreateContainerConfigError', message: env.message };
    const volumes = await deps.volumes.containerMounts(pod, container, podIPs, signal);
    if (!volumes.ok) return { ok: false, reason: volumes.reason, message: volumes.message };
    const user = ready.user ?? (await imageUser(deps, ready.imageRef, signal));
    const problem = rootProblem(pod, container, user);
    if (problem !== null) return { ok: false, reason: 'CreateContainerConfigError', message: problem };
    const mounts: MountInput[] = (grants?.mounts ?? []).map(({ containerPath, hostPath, readOnly }) => ({ containerPath, hostPath, readonly: readOnly }));
    for (const mount of volumes.mounts) {
      const image = mount.image === undefined ? undefined : images.get(mount.name);
      mounts.push(mountInput(mount, image?.ok === true ? image.image : undefined, deps.context.hasSelinux));
    }
    const path = wholePath(container.terminationMessagePath ?? '');
    if (path !== '') {
      const hostPath = await deps.files.terminationLog(deps.context.rootDir, keyOf(pod).uid, container.name);
      mounts.push({ hostPath, containerPath: path, ...(deps.context.hasSelinux ? { selinuxRelabel: true } : {}) });
    }
    const devices = [...(grants?.devices ?? []), ...(volumes.devices ?? [])];
    const cdiDevices = deps.claims?.cdiDevices(pod, container) ?? [];
    return { ok: true, env: [...(grants?.envs ?? []), ...env.env, ...(volumes.env ?? [])], mounts, devices, cdiDevices, user, grants };
  } catch (error) {
    signal.throwIfAborted();
    return { ok: false, reason: 'CreateContainerConfigError', message: failureWords(error) };
  }
}

async function imageUser(deps: StepDeps, imageRef: string, signal: AbortSignal): Promise<ImageUser> {
  const { image } = await deps.cri.images.imageStatus({ image: { image: imageRef } }, { timeoutMs: deps.timeoutMs, signal });
  return image === null ? { uid: 0, username: '' } : imageUserOf(image);
}

/** For which runtime handler an image is to be there; '' is for none in particular. */
function imageHandler({ imagesByHandler = false }: StepDeps, { runtimeHandler }: OpenSandbox): string {
  return imagesByHandler ? runtimeHandler : '';
}

/** The images of a pod's image volumes by the name of the volume, there by their pull policies, or why not. */
export type ImageVolumes = ReadonlyMap<string, { readonly ok: true; readonly image: ImageSpecInput } | Extract<ImageOutcome, { ok: false }>>;

/** Sees to all of them, mounted or not, before any container is started. Its events are about the pod. */
export async function ensureImageVolumes(deps: StepDeps, run: RunContext, sandbox: OpenSandbox, signal: AbortSignal): Promise<ImageVolumes> {
  const { config: sandboxConfig } = sandbox;
  const runtimeHandler = imageHandler(deps, sandbox);
  const annotations = { ...run.pod.metadata.annotations };
  const tell = ({ type, reason, message }: EventText): void => run.tell({ type, reason, message });
  const all = new Map<string, { ok: true; image: ImageSpecInput } | Extract<ImageOutcome, { ok: false }>>();
  for (const { name, image } of run.pod.spec.volumes ?? []) {
    if (image === undefined) continue;
    const { reference = '', pullPolicy } = image;
    const container = { name, image: reference, ...(pullPolicy === undefined ? {} : { imagePullPolicy: pullPolicy }) };
    const got = await deps.images.ensure({ pod: run.pod, container, sandboxConfig, runtimeHandler, tell }, signal);
    const handler = runtimeHandler === '' ? {} : { runtimeHandler };
    all.set(name, got.ok ? { ok: true, image: { image: got.imageRef, userSpecifiedImage: reference, annotations, ...handler } } : got);
  }
  return all;
}

/** Why a container cannot be started for want of an image that it mounts; null: it can. Tells of it. */
export function missingImage(run: RunContext, container: Container, images: ImageVolumes): StartFailure | null {
  let failure: StartFailure | null = null;
  for (const { name } of container.volumeMounts ?? []) {
    const image = images.get(name);
    if (image?.ok !== false) continue;
    const { reason, message, isSaid = false } = image;
    if (!isSaid) run.tell({ type: 'Warning', reason: 'Failed', message: `Error: ${reason}`, container: container.name });
    failure = { name: container.name, reason, message };
  }
  return failure;
}

function mountInput(mount: ContainerMount, image: ImageSpecInput | undefined, hasSelinux: boolean): MountInput {
  const { hostPath, containerPath, propagation, recursiveReadOnly, selinuxRelabel, imageSubPath, mountOptions } = mount;
  return {
    hostPath,
    containerPath,
    readonly: mount.readonly,
    propagation,
    ...(recursiveReadOnly === undefined ? {} : { recursiveReadOnly }),
    ...(selinuxRelabel === true && hasSelinux ? { selinuxRelabel } : {}),
    ...(image === undefined ? {} : { image }),
    ...(imageSubPath === undefined ? {} : { imageSubPath }),
    ...(mountOptions === undefined ? {} : { mountOptions: [...mountOptions] }),
  };
}

/** A container has the users of its sandbox. */
function usersOf({ config }: OpenSandbox): { userNamespace?: UserNamespaceInput } {
  const users = config.linux?.securityContext?.namespaceOptions?.usernsOptions;
  return users === undefined || users === null ? {} : { userNamespace: users };
}

function targetName(pod: Pod, name: string): string {
  return pod.spec.ephemeralContainers?.find((each) => each.name === name)?.targetContainerName ?? '';
}
