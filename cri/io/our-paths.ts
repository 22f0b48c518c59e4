/** Where what belongs to us lies on this machine: said by the launcher, as for the other commands. */
type Env = Readonly<Record<string, string | undefined>>;

/** The C program of ours. */
export function sysProgram(env: Env): string {
  return env['NODELET_SYS'] ?? `${env['NODELET_ROOT'] ?? process.cwd()}/dist/sys`;
}

/** Folder of all sets. */
export function stateHome(env: Env): string {
  return env['NODELET_STATE'] || '/var/lib/nodelet';
}
