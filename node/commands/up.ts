import { readFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { wasSignalled } from '../../base/abort.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { readYamlAll } from '../../base/yaml.ts';
import { builtinTypes } from '../core/builtin.ts';
import { COREDNS_IMAGE, coreDnsObjects, coreDnsRecipe, hasCoreDns } from '../core/coredns.ts';
import { kubeadmObjects } from '../core/kubeadm.ts';
import { podNetworkObjects } from '../core/pod-network.ts';
import { imagesOf, objectOf, readManifest, type ManifestObject } from '../core/manifest.ts';
import type { SetPlan } from '../core/plan.ts';
import { parseImageName, standIn } from '../core/oci.ts';
import type { RealPrograms } from '../core/real.ts';
import { connectCluster, type Cluster } from '../io/cluster.ts';
import { listImages, makeImage } from '../io/images.ts';
import { lockSet } from '../io/lock.ts';
import type { Machine } from '../io/machine.ts';
import { bootstrapToken, caBase64 } from '../io/credentials.ts';
import { findControlPlane, realPrograms } from '../io/real.ts';
import { registryAnswers } from '../io/registries.ts';
import { firstProcess, lastWords } from '../io/running.ts';
import { loadSet, planOf, requireSpace, saveSet } from '../io/state.ts';
import { PAUSE_IMAGE, startSet, type StartOptions } from '../io/start.ts';
import { checkChoice, cniOf, growSet, newSet, type SetChoice } from './choose.ts';
import { requireRoot, table, type Context } from './context.ts';
import { killSet, removeRemains } from './down.ts';
import { builtInRecipe, imageStore } from './image.ts';
import { prepareMachine } from './prepare.ts';

export interface UpOptions extends SetChoice {
  readonly timeout: string;
}

const REGISTRY_TIMEOUT_MS = 3_000;
/** The default of --timeout. */
const USUAL_TIMEOUT_MS = 120_000;

/** Refuses what `up` would refuse, before anything is made for it. Returns --timeout in milliseconds. */
export function checkUp(options: UpOptions): number {
  checkChoice(options);
  const timeoutMs = Number(options.timeout) * 1000;
  if (!(timeoutMs > 0)) throw new OpError('invalid', 'reading --timeout', `"${options.timeout}" is not a number of seconds`);
  requireRoot();
  return timeoutMs;
}

/** `nodelet up [MANIFEST]`. */
export async function up(given: Context, manifest: string | undefined, options: UpOptions): Promise<number> {
  try {
    return await bringUp(stoppable(given), manifest, options);
  } catch (error) {
    throw (await wasSignalled(given.host.signal)) ? stopped() : error;
  }
}

async function bringUp(context: Context, manifest: string | undefined, options: UpOptions): Promise<number> {
  const begunAt = performance.now();
  const objects = manifest === undefined ? [] : await readManifestFile(manifest);
  const timeoutMs = checkUp(options);
  // A machine that needs longer for pods needs longer for all before them.
  const patient = (ms: number): number => Math.max(ms, (ms * timeoutMs) / USUAL_TIMEOUT_MS);
  await using _lock = await lockSet(context.home, context.options.name);
  const previous = await loadSet(context.home, context.options.name);
  if (previous === null) await requireSpace(context.home);
  const wantsReal = options.controlPlane === 'real' && options.programs === undefined;
  const real =
    previous === null ? (wantsReal ? await findControlPlane(context.host.env) : (options.programs ?? null)) : await realPrograms(previous, context.host.env);
  const machine = await prepareMachine(context, {
    containerd: previous?.containerd ?? options.containerd,
    forTests: false,
    cni: previous === null ? cniOf(options) : (previous.options.cni ?? 'reference'),
  });
  await makeImages(context, machine, objects, real);

  const installedAt = performance.now();
  const choice = real === null ? options : { ...options, programs: real };
  await using chosen = previous === null ? await newSet(context, machine, choice) : await growSet(context, previous, choice);
  const { saved } = chosen;
  const plan = planOf(context.home, saved);
  const isNew = previous === null;
  await using cluster = await startAll(context, { plan, saved, machine, real, isNew, startMs: patient(60_000), areNodesAll: objects.length === 0 });
  if (objects.length > 0) {
    try {
      await context.progress.step(`${manifest} applied (${objects.length} objects)`, () => cluster.apply(objects));
      await context.progress.step('pods ready', () => cluster.podsReady(objects, timeoutMs));
      await context.progress.step('Services answer', () => cluster.servicesAnswer(objects, patient(15_000)));
    } catch (error) {
      if (!(await wasSignalled(context.host.signal))) for (const line of await lastWords(plan)) context.progress.note(`  ${line}`);
      else if (isNew) await takeBack(context, plan);
      throw error;
    }
  }
  await report(context, plan, cluster, objects, { totalMs: performance.now() - begunAt, sinceInstalledMs: performance.now() - installedAt });
  return 0;
}

async function readManifestFile(path: string): Promise<ManifestObject[]> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new OpError('not-found', `reading ${path}`, 'there is no such file that can be read', {
      cause,
      advice: 'name a file with Kubernetes objects, for example examples/web.yaml',
    });
  });
  const documents = await readYamlAll(text, path);
  const { objects, problems } = readManifest(documents, builtinTypes, path);
  if (problems.length > 0)
    throw new OpError('invalid', 'reading the manifest', problems.join('; '), { advice: 'nothing was started; mend the file and try again' });
  return objects;
}

interface StartAll extends Omit<StartOptions, 'context'> {
  readonly isNew: boolean;
  readonly startMs: number;
  /** Whether nothing but ready nodes is wanted; else the pods that are wanted tell whether they are. */
  readonly areNodesAll: boolean;
}

/** Starts what does not run yet; takes back a new set that does not come up. */
async function startAll(context: Context, set: StartAll): Promise<Cluster> {
  const { plan, isNew, startMs } = set;
  let cluster: Cluster | undefined;
  const answers = async (): Promise<Cluster> => {
    const connected = (cluster ??= await connectCluster(plan, context.host.signal));
    await context.progress.step('API server answers', () => connected.ready(startMs));
    return connected;
  };
  const beforeNodes = async (): Promise<void> => {
    const connected = await answers();
    if (plan.join === 'token') await context.progress.step('nodes may join', () => letJoin(plan, set, connected, startMs));
    else await connected.make(podNetworkObjects().map(objectOf), startMs);
  };
  // The embedded control plane has the pod network's role from its start.
  const isBefore = plan.join === 'token' || (set.real !== null && plan.cni === 'nodelet');
  try {
    if (isNew) await saveSet(context.home, set.saved);
    await startSet({ context, ...set, ...(isBefore ? { beforeNodes } : {}) });
    const connected = cluster ?? (await answers());
    await context.progress.step(plan.nodes.length === 1 ? 'node registered' : `${plan.nodes.length} nodes registered`, () =>
      connected.nodesRegistered(startMs),
    );
    return connected;
  } catch (error) {
    await cluster?.[Symbol.asyncDispose]();
    if (isNew) {
      if (!(await wasSignalled(context.host.signal))) for (const line of await lastWords(plan)) context.progress.note(`  ${line}`);
      await takeBack(context, plan);
    }
    throw error;
  }
}

/** Leaves in the cluster what `kubeadm init` leaves there: for nodes that join, and the cluster's DNS. */
async function letJoin(plan: SetPlan, set: Pick<StartOptions, 'real' | 'machine'>, cluster: Cluster, timeoutMs: number): Promise<void> {
  const token = await bootstrapToken(plan);
  const facts = { token, caBase64: await caBase64(plan), version: await cluster.version(), cgroupVersion: set.machine.cgroup?.version ?? 2 };
  const dns = hasCoreDns(plan, set.real) ? coreDnsObjects(plan) : [];
  const network = plan.cni === 'nodelet' ? podNetworkObjects() : [];
  await cluster.make([...kubeadmObjects(plan, facts), ...network, ...dns].map(objectOf), timeoutMs);
}

async function takeBack(context: Context, plan: SetPlan): Promise<void> {
  context.progress.note('  taking back what was started');
  try {
    await killSet(plan);
    await removeRemains(context, plan);
  } catch (error) {
    context.progress.note(`  not all of it: ${messageOf(error)}; go on with: nodelet down --name ${plan.name}`);
  }
}

const stopped = (): OpError => new OpError('aborted', 'nodelet up', 'stopped by a signal', { advice: 'see what runs with: nodelet status' });

/** The same context for a command that SIGINT and SIGTERM end: no step begins after them. */
function stoppable(context: Context): Context {
  const { signal } = context.host;
  return {
    ...context,
    progress: {
      ...context.progress,
      async step(title, work) {
        if (signal.aborted) throw stopped();
        return await context.progress.step(title, work);
      },
    },
  };
}

/** Makes pause and the manifest's images where no registry answers for them and nobody made them before. */
async function makeImages(context: Context, machine: Machine, objects: readonly ManifestObject[], real: RealPrograms | null): Promise<void> {
  const store = imageStore(context);
  const have = new Set((await listImages(store)).map((image) => image.name));
  const coreDns = parseImageName(COREDNS_IMAGE);
  if (real?.coredns !== undefined && coreDns !== null && !have.has(COREDNS_IMAGE)) {
    const recipe = coreDnsRecipe(real.coredns);
    await context.progress.step(`image ${COREDNS_IMAGE} made`, () => makeImage(store, coreDns, recipe));
  }
  const answers = new Map<string, Promise<boolean>>();
  for (const text of [PAUSE_IMAGE, ...imagesOf(objects)]) {
    const name = parseImageName(text);
    if (name === null || have.has(`${name.host}/${name.repository}:${name.tag}`)) continue;
    if (!answers.has(name.host)) answers.set(name.host, registryAnswers(name.host, REGISTRY_TIMEOUT_MS));
    if (await answers.get(name.host)) continue;
    const recipe = standIn(name);
    if (recipe === null)
      context.progress.note(`  ${text}: ${name.host} does not answer and nothing here stands in for it; make it with: nodelet image make ${text}`);
    else
      await context.progress.step(`image ${text} made (${name.host} does not answer)`, async () =>
        makeImage(store, name, await builtInRecipe(machine, recipe)),
      );
  }
}

async function report(
  context: Context,
  plan: SetPlan,
  cluster: Cluster,
  objects: readonly ManifestObject[],
  times: { totalMs: number; sinceInstalledMs: number },
): Promise<void> {
  const state = await cluster.summary(objects);
  const kubeconfig = `${plan.state}/admin.kubeconfig`;
  const flag = plan.name === 'default' ? '' : ` --name ${plan.name}`;
  const service = state.services.find((one) => one.clusterIP !== 'None' && one.clusterIP !== '');
  const first = state.pods[0];
  const hubRuns = (await firstProcess(plan.hub.dir)) !== null;
  context.answer(
    {
      name: plan.name,
      running: hubRuns,
      kubeconfig,
      server: plan.server,
      nodes: plan.nodes.map((node) => ({ name: node.name, ip: node.ip, podCIDR: node.podCidr })),
      pods: state.pods,
      services: state.services,
      seconds: { total: times.totalMs / 1000, sincePackagesAndImages: times.sinceInstalledMs / 1000, steps: context.progress.times },
    },
    [
      '',
      ...(state.pods.length === 0
        ? []
        : [
            ...table([
              ['POD', 'READY', 'STATUS', 'IP', 'NODE'],
              ...state.pods.map((pod) => [`${pod.namespace}/${pod.name}`, pod.ready, pod.status, pod.ip, pod.node]),
            ]),
            '',
          ]),
      ...(state.services.length === 0
        ? []
        : [...table([['SERVICE', 'CLUSTER-IP', 'PORTS'], ...state.services.map((one) => [`${one.namespace}/${one.name}`, one.clusterIP, one.ports])]), '']),
      `kubeconfig  ${kubeconfig}`,
      `running in  ${(times.sinceInstalledMs / 1000).toFixed(1)} s from installed packages (${(times.totalMs / 1000).toFixed(1)} s in all, ${cpus().length} CPUs)`,
      '',
      'Try next:',
      service === undefined
        ? `  sudo ./nodelet kubectl${flag} get nodes -o wide`
        : `  curl http://${service.clusterIP}${service.port === 80 ? '' : `:${service.port}`}/`,
      first === undefined
        ? `  sudo ./nodelet kubectl${flag} apply -f examples/web.yaml`
        : `  sudo ./nodelet kubectl${flag} exec -n ${first.namespace} ${first.name} -- ps`,
      `  sudo ./nodelet down${flag}`,
    ],
  );
}
