import type { ServiceSpec } from './services.ts';

/** A hub or a node as the operating system sees it. */
export interface Place {
  readonly hostname: string;
  readonly dir: string;
  /** Made before it starts. */
  readonly folders: readonly string[];
  /** Empty files made before it starts: targets of binds. */
  readonly files: readonly string[];
  /** `cgroup.procs` of each goes to its first process before the namespaces are made. */
  readonly cgroupDirs: readonly string[];
  /** Inside its mount namespace, in this order, recursively. */
  readonly binds: readonly { readonly from: string; readonly to: string }[];
  readonly tmpfs: readonly string[];
  readonly services: readonly ServiceSpec[];
}

/** A program that dies starts again after this, and ever later while it keeps dying. */
const RESTART_MS = 100;
const RESTART_CAP_MS = 2_000;

/** The file that `sys init` reads: one stanza a service. */
export function initSpec(place: Place): string {
  const lines = [`state ${place.dir}/init.state`, `control ${place.dir}/init.ctl`];
  for (const service of place.services) {
    lines.push(
      '',
      `service ${service.name}`,
      ...service.argv.map((argument) => `argv ${argument}`),
      ...Object.entries(service.env).map(([name, value]) => `env ${name}=${value}`),
      ...(service.nice === undefined ? [] : [`nice ${service.nice}`]),
      `log ${service.logFile}`,
      `delay ${RESTART_MS}`,
      `cap ${RESTART_CAP_MS}`,
    );
  }
  return `${lines.join('\n')}\n`;
}

/** The command line of `sys nsrun`. */
export function nsrunArguments(place: Place): string[] {
  return [
    'nsrun',
    '--net=new',
    '--mount',
    `--uts=${place.hostname}`,
    '--ipc',
    '--pid',
    ...place.binds.map((bind) => `--bind=${bind.from}:${bind.to}`),
    ...place.tmpfs.map((path) => `--tmpfs=${path}`),
    `--cgroup=${place.cgroupDirs.join(',')}`,
    `--pidfile=${place.dir}/init.pid`,
    `--log=${place.dir}/log/init.log`,
    '--',
    'init',
    `${place.dir}/init.spec`,
  ];
}
