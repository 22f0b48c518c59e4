import { kubectlIsRecent, kubectlWords } from '../io/machine.ts';
import { missingPackages } from '../io/packages.ts';
import { lookAtMachine, table, type Context } from './context.ts';

/** Seen: a real control plane takes 20, a node of upstream's about 15; without one to be had containerd starts without its CRI. */
const INOTIFY_WANTED = 512;

interface Finding {
  readonly what: string;
  readonly state: 'ok' | 'installed by up' | 'missing' | 'note';
  readonly detail: string;
}

/** What this machine has and lacks for a node. Exit status 1 when `up` could not work. */
export async function doctor(context: Context, options: { containerd?: string }): Promise<number> {
  const machine = await lookAtMachine(context, options.containerd);
  const { osInfo, mem, cpu } = await import('systeminformation');
  const [os, memory, processor] = await Promise.all([osInfo(), mem(), cpu()]);
  const missing = missingPackages(machine, { wantCompiler: true });
  const hasApt = machine.programs['apt-get'] !== undefined;
  const findings: Finding[] = [
    {
      what: 'system',
      state: 'ok',
      detail: `${os.distro} ${os.release}, kernel ${machine.kernel}, ${processor.cores} CPUs, ${(memory.total / 2 ** 30).toFixed(1)} GiB`,
    },
    { what: 'root', state: machine.isRoot ? 'ok' : 'missing', detail: machine.isRoot ? 'yes' : 'run with sudo' },
    machine.cgroup === null
      ? { what: 'cgroups', state: 'missing', detail: 'no cpu, memory and pids controllers here: mount cgroup2 on /sys/fs/cgroup, or run privileged' }
      : {
          what: 'cgroups',
          state: machine.cgroup.version === 2 ? 'ok' : 'note',
          detail: machine.cgroup.version === 2 ? 'version 2' : 'version 1: the kubelet runs with failCgroupV1 false',
        },
    {
      what: 'inotify',
      state: machine.inotifyInstances >= INOTIFY_WANTED ? 'ok' : 'note',
      detail:
        machine.inotifyInstances >= INOTIFY_WANTED
          ? `${machine.inotifyInstances} instances`
          : `${machine.inotifyInstances} instances are enough for two or three real clusters at once; for more: sysctl fs.inotify.max_user_instances=${INOTIFY_WANTED}`,
    },
  ];
  const program = (name: 'containerd' | 'runc' | 'nft' | 'iptables' | 'ip' | 'busybox' | 'catatonit' | 'cc', extra = ''): Finding => {
    const path = machine.programs[name];
    if (path !== undefined) return { what: name, state: 'ok', detail: `${path}${extra}` };
    return { what: name, state: hasApt ? 'installed by up' : 'missing', detail: hasApt ? '' : 'no apt-get here: install it by hand' };
  };
  findings.push(
    program('containerd', machine.containerdVersion === null ? '' : ` ${machine.containerdVersion}`),
    program('runc'),
    machine.cniBinDir === null
      ? { what: 'CNI plugins', state: hasApt ? 'installed by up' : 'missing', detail: 'containernetworking-plugins' }
      : { what: 'CNI plugins', state: 'ok', detail: machine.cniBinDir },
    program('nft'),
    program('iptables'),
    program('ip'),
    program('busybox'),
    program('catatonit'),
    program('cc'),
    kubectlIsRecent(machine.kubectlVersion)
      ? { what: 'kubectl', state: 'ok', detail: `${machine.programs.kubectl} v${machine.kubectlVersion}` }
      : {
          what: 'kubectl',
          state: 'note',
          detail: `${kubectlWords(machine)}: 1.30 or later is needed for "nodelet kubectl"`,
        },
    {
      what: 'oom_score_adj',
      state: machine.mayLowerOomScore ? 'ok' : 'note',
      detail: machine.mayLowerOomScore ? 'may be lowered' : 'CAP_SYS_RESOURCE is missing: containers keep the score they inherit',
    },
  );
  const bad = findings.filter((finding) => finding.state === 'missing');
  context.answer({ ok: bad.length === 0, findings, packagesToInstall: missing }, [
    ...table([['WHAT', 'STATE', 'DETAIL'], ...findings.map((finding) => [finding.what, finding.state, finding.detail])]),
    '',
    bad.length === 0 ? 'nodelet up works here' : `nodelet up does not work here: ${bad.map((finding) => finding.what).join(', ')}`,
  ]);
  return bad.length === 0 ? 0 : 1;
}
