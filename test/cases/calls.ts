import { readFileSync } from 'node:fs';

export interface RuntimeCall {
  readonly atMs: number;
  readonly method: string;
  readonly pod: string;
  readonly container: string;
  readonly attempt: number;
  /** Of StopContainer. */
  readonly timeoutS?: number;
  readonly id: string;
}

/** What the runtime was asked to do, read from containerd's own log: its method names, pods and containers by name. */
export function runtimeCalls(logFile: string): RuntimeCall[] {
  const calls: RuntimeCall[] = [];
  const sandboxes = new Map<string, { pod: string; attempt: number }>();
  const containers = new Map<string, { pod: string; container: string; attempt: number }>();
  for (const line of readFileSync(logFile, 'utf8').split('\n')) {
    const parts = /^time="([^"]+)" level=info msg="(.*)"(?: \w+=.*)?$/.exec(line);
    if (parts === null) continue;
    const atMs = Date.parse(parts[1] ?? '');
    const text = (parts[2] ?? '').replaceAll('\\"', '"');
    const sandbox = /^RunPodSandbox for &PodSandboxMetadata\{Name:([^,]+),Uid:[^,]*,Namespace:[^,]*,Attempt:(\d+),\} returns sandbox id "(\w+)"/.exec(text);
    if (sandbox !== null) {
      const [pod = '', attempt = '', id = ''] = sandbox.slice(1);
      sandboxes.set(id, { pod, attempt: Number(attempt) });
      calls.push({ atMs, method: 'RunPodSandbox', pod, container: '', attempt: Number(attempt), id });
      continue;
    }
    const created = /^CreateContainer within sandbox "(\w+)" for &ContainerMetadata\{Name:([^,]+),Attempt:(\d+),\} returns container id "(\w+)"/.exec(text);
    if (created !== null) {
      const [within = '', container = '', attempt = '', id = ''] = created.slice(1);
      const one = { pod: sandboxes.get(within)?.pod ?? '', container, attempt: Number(attempt) };
      containers.set(id, one);
      calls.push({ atMs, method: 'CreateContainer', ...one, id });
      continue;
    }
    const stop = /^StopContainer for "(\w+)" with timeout (\d+) \(s\)/.exec(text);
    const other = /^(StartContainer|StopContainer|RemoveContainer|StopPodSandbox) for "(\w+)"( returns successfully)?$/.exec(text);
    const id = stop?.[1] ?? other?.[2] ?? '';
    const of = containers.get(id) ?? (sandboxes.has(id) ? { ...(sandboxes.get(id) as { pod: string; attempt: number }), container: '' } : undefined);
    if (of === undefined) continue;
    if (stop !== null) calls.push({ atMs, method: 'StopContainer', ...of, timeoutS: Number(stop[2]), id });
    else if (other !== null && other[3] === undefined && other[1] !== 'StopContainer') calls.push({ atMs, method: other[1] ?? '', ...of, id });
    else if (other !== null && other[1] === 'StopContainer') calls.push({ atMs, method: 'StopContainer done', ...of, id });
  }
  return calls;
}
