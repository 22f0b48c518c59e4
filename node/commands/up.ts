import { readFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { OpError } from '../../base/errors.ts';
import { readYamlAll } from '../../base/yaml.ts';
import { builtinTypes } from '../core/builtin.ts';
import { imagesOf, readManifest, type ManifestObject } from '../core/manifest.ts';
import type { SetPlan } from '../core/plan.ts';
import { parseImageName, standIn } from '../core/oci.ts';
import { buildSys, sysIsStale } from '../io/build.ts';
import { connectCluster, type Cluster } from '../io/cluster.ts';
import { listImages, makeImage } from '../io/images.ts';
import { lockSet } from '../io/lock.ts';
import type { Machine } from '../io/machine.ts';
import { installPackages, missingPackages } from '../io/packages.ts';
import { findControlPlane } from '../io/real.ts';
import { registryAnswers } from '../io/registries.ts';
import { firstProcess, lastWords } from '../io/running.ts';
import { loadSet, planOf } from '../io/state.ts';
import { PAUSE_IMAGE, startSet, type StartOptions } from '../io/start.ts';
import { checkChoice, growSet, newSet, type SetChoice } from './choose.ts';
import { lookAtMachine, requireRoot, table, type Context } from './context.ts';
import { killSet, removeRemains } from './down.ts';
import { builtInRecipe, imageStore } from './image.ts';

export interface UpOptions extends SetChoice {
  readonly timeout: string;
}

const REGISTRY_TIMEOUT_MS = 3_000;

/** `nodelet up [MANIFEST]`. */
export async function up(context: Context, manifest: string | undefined, options: UpOptions): Promise<number> {
  const begunAt = performance.now();
  const objects = manifest === undefined ? [] : await readManifestFile(manifest);
  requireRoot();
  checkChoice(options);
  const timeoutMs = Number(options.timeout) * 1000;
  if (!(timeoutMs > 0)) throw new OpError('invalid', 'reading --timeout', `"${options.timeout}" is not a number of seconds`);
  await using _lock = await lockSet(context.home, context.options.name);
  const previous = await loadSet(context.home, context.options.name);
  const real = (previous?.options.controlPlane ?? options.controlPlane) === 'real' ? await findControlPlane(context.host.env) : null;
  const machine = await prepareMachine(context, previous?.containerd ?? options.containerd);
  await makeImages(context, machine, objects);

  const installedAt = performance.now();
  const saved = previous === null ? await newSet(context, machine, options) : await growSet(context, previous, options);
  const plan = planOf(context.home, saved);
  const started = await startAll(context, { plan, saved, machine, real, isNew: previous === null });
  await using cluster = started;
  if (objects.length > 0) {
    await context.progress.step(`${manifest} applied (${objects.length} objects)`, () => cluster.apply(objects));
    await context.progress.step('pods ready', () => cluster.podsReady(objects, timeoutMs));
    await context.progress.step('Services answer', () => cluster.servicesAnswer(objects, 15_000));
  } else await context.progress.step('nodes ready', () => cluster.nodesReady(60_000));
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

/** Starts what does not run yet; takes back a new set that does not come up. */
async function startAll(context: Context, set: Omit<StartOptions, 'context'> & { isNew: boolean }): Promise<Cluster> {
  const { plan, isNew } = set;
  try {
    await startSet({ context, ...set });
    const cluster = await connectCluster(plan, context.host.signal);
    await context.progress.step('API server answers', () => cluster.ready(60_000));
    await context.progress.step(plan.nodes.length === 1 ? 'node registered' : `${plan.nodes.length} nodes registered`, () => cluster.nodesRegistered(60_000));
    return cluster;
  } catch (error) {
    if (isNew) {
      for (const line of await lastWords(plan)) context.progress.note(`  ${line}`);
      context.progress.note('  taking back what was started');
      await killSet(plan).catch(() => undefined);
      await removeRemains(context, plan).catch(() => undefined);
    }
    throw error;
  }
}

/** Brings what is missing of the distribution's packages and our C program, and refuses a machine that cannot run a node. */
async function prepareMachine(context: Context, containerd: string | undefined): Promise<Machine> {
  let machine = await lookAtMachine(context, containerd);
  if (machine.cgroup === null) {
    throw new OpError('unsupported', 'looking at this machine', 'no cgroup hierarchy with memory and cpu is mounted', {
      advice: 'mount cgroup2 on /sys/fs/cgroup, or run this container privileged',
    });
  }
  const isOurs = machine.programs.containerd === containerd || machine.programs.containerd === `${containerd}/containerd`;
  if (containerd !== undefined && (!isOurs || machine.containerdVersion === null))
    throw new OpError('not-found', 'reading --containerd', `there is no containerd at ${containerd} that runs here`);
  const stale = await sysIsStale(context.root);
  const missing = missingPackages(machine, { wantCompiler: stale });
  if (missing.length > 0) {
    if (machine.programs['apt-get'] === undefined) {
      throw new OpError('not-found', 'looking at this machine', `missing: ${missing.join(', ')}, and there is no apt-get to install them`, {
        advice: 'install them by hand, or give a containerd with --containerd',
      });
    }
    await context.progress.step(`packages installed: ${missing.join(' ')}`, () => installPackages(missing));
    machine = await lookAtMachine(context, containerd);
  }
  if (stale) await context.progress.step('sys built', () => buildSys(context.root));
  if (machine.cgroup?.version === 1) context.progress.note('  cgroup v1 here: the kubelet is configured with failCgroupV1: false');
  return machine;
}

/** Makes pause and the manifest's images where no registry answers for them and nobody made them before. */
async function makeImages(context: Context, machine: Machine, objects: readonly ManifestObject[]): Promise<void> {
  const store = imageStore(context);
  const have = new Set((await listImages(store)).map((image) => image.name));
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
        ? `  ./nodelet kubectl${flag} get nodes -o wide`
        : `  curl http://${service.clusterIP}${service.port === 80 ? '' : `:${service.port}`}/`,
      first === undefined
        ? `  ./nodelet kubectl${flag} apply -f examples/web.yaml`
        : `  ./nodelet kubectl${flag} exec -n ${first.namespace} ${first.name} -- ps`,
      `  sudo ./nodelet down${flag}`,
    ],
  );
}
