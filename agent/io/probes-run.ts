import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import type { Container, Pod, Probe } from '../../proto/kube/types.ts';
import { expand } from '../core/expand.ts';
import { timingOf } from '../core/probe.ts';
import { durationText } from '../../base/duration.ts';
import { rpcErrorText, type Cri } from './cri.ts';
import type { ExecKill } from './exec-kill.ts';
import { probeGrpc } from './probes-grpc.ts';
import { probeHttp } from './probes-http.ts';
import { probeTcp, type ProbeAnswer } from './probes-net.ts';

/** One run of one probe. */
export interface ProbeRun {
  readonly pod: Pod;
  readonly container: Container;
  readonly containerId: string;
  readonly podIP: string;
  readonly probe: Probe;
}

export type ProbeRunner = (run: ProbeRun, signal: AbortSignal) => Promise<ProbeAnswer>;

/** A runtime that does not keep its own deadline is left this much later. */
const execSlackMs = 5_000;
const outputMax = 10 * 1024;
/** How much longer the runtime waits where the agent itself ends what takes too long; whole seconds are all it knows. */
const killSlackMs = 1_000;

interface ExecDeps {
  readonly runtime: Pick<Cri['runtime'], 'execSync'>;
  readonly clock: Clock;
  readonly kill: ExecKill | null;
}

export interface ProbeOptions {
  readonly kill?: ExecKill | null;
  /** `GRPCContainerProbeTLS`: a gRPC probe's mode counts. */
  readonly grpcTls?: boolean;
  /** `H2CContainerProbe`: an HTTP probe's protocol counts. */
  readonly h2c?: boolean;
}

/** Runs probes for real. */
export function createProbeRunner(runtime: Pick<Cri['runtime'], 'execSync'>, clock: Clock, options: ProbeOptions = {}): ProbeRunner {
  const { kill = null, grpcTls = false, h2c = false } = options;
  return async (run, signal) => {
    const { probe, container } = run;
    const { timeoutMs } = timingOf(probe);
    if (probe.exec !== undefined) return probeExec({ runtime, clock, kill }, run, timeoutMs, signal);
    // An empty address would mean this very machine.
    const host = probe.httpGet?.host || probe.tcpSocket?.host || run.podIP;
    if (host === '') return { result: 'error', output: 'the pod has no address' };
    if (probe.httpGet !== undefined) {
      const port = portOf(probe.httpGet.port, container);
      if (typeof port === 'string') return { result: 'error', output: port };
      return probeHttp({ action: probe.httpGet, host, port, h2c: h2c && probe.httpGet.protocol === 'HTTP2' }, timeoutMs, signal);
    }
    if (probe.tcpSocket !== undefined) {
      const port = portOf(probe.tcpSocket.port, container);
      if (typeof port === 'string') return { result: 'error', output: port };
      return probeTcp(host, port, timeoutMs, signal);
    }
    if (probe.grpc !== undefined) {
      const { port, service = '', mode } = probe.grpc;
      return probeGrpc({ host, port, service, tls: grpcTls && mode === 'TLS' }, timeoutMs, signal);
    }
    return { result: 'error', output: `missing probe handler for ${container.name}` };
  };
}

/** The whole deadline is the runtime's to keep; passing it is a failure like any other. */
async function probeExec({ runtime, clock, kill }: ExecDeps, run: ProbeRun, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  const values = new Map((run.container.env ?? []).filter(({ valueFrom }) => valueFrom === undefined).map(({ name, value }) => [name, value ?? '']));
  const cmd = (run.probe.exec?.command ?? []).map((part) => expand(part, (name) => values.get(name)));
  const timedOut: ProbeAnswer = { result: 'failure', output: `command timed out: ${JSON.stringify(cmd.join(' '))} timed out after ${durationText(timeoutMs)}` };
  const beganMs = clock.monoMs();
  let killed = false;
  // Before the runtime does it: it ends one process, and the others are then nobody's children.
  const timer =
    kill === null
      ? null
      : clock.after(timeoutMs, () => {
          killed = true;
          void kill(run.containerId, cmd, beganMs, signal);
        });
  const runtimeMs = kill === null ? timeoutMs : timeoutMs + killSlackMs;
  try {
    const answer = await runtime.execSync({ containerId: run.containerId, cmd, timeout: runtimeMs / 1000 }, { timeoutMs: runtimeMs + execSlackMs, signal });
    if (killed) return timedOut;
    const output = Buffer.concat([answer.stdout, answer.stderr]).subarray(0, outputMax).toString();
    return { result: answer.exitCode === 0 ? 'success' : 'failure', output };
  } catch (error) {
    if (signal.aborted) throw error;
    if (killed || hasCode(error, 'deadline')) return timedOut;
    return { result: 'error', output: rpcErrorText(error) || messageOf(error) };
  } finally {
    timer?.[Symbol.dispose]();
  }
}

function portOf(port: number | string, container: Container): number | string {
  const number = typeof port === 'number' ? port : (container.ports?.find(({ name }) => name === port)?.containerPort ?? Number(port));
  if (Number.isNaN(number)) return `couldn't find port: ${JSON.stringify(port)} for ${JSON.stringify(container.name)}`;
  return number > 0 && number < 65_536 ? number : `invalid port number: ${port}`;
}
