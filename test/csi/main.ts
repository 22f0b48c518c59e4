import { mkdirSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { NodeRpcType } from '../../proto/plugins/csi.ts';
import { allCapabilities, startDriver } from './driver.ts';

/* The test driver as a program: `node test/csi/main.ts --root /var/lib/kubelet --state DIR [--name N] [--node N]`. */

const { values } = parseArgs({
  options: {
    name: { type: 'string', default: 'csi.nodelet.test' },
    node: { type: 'string', default: 'node' },
    root: { type: 'string', default: '/var/lib/kubelet' },
    state: { type: 'string' },
    capabilities: { type: 'string', default: allCapabilities.join(',') },
    topology: { type: 'string', default: '' },
    /** Ends with its standard input: signals do not reach it from outside its PID namespace. */
    stdin: { type: 'boolean', default: false },
  },
});
const { name, node, root, state } = values;
if (state === undefined) throw new Error('--state names the directory for volumes and the record of calls');
mkdirSync(state, { recursive: true });
const topology = Object.fromEntries(values.topology.split(',').flatMap((pair) => (pair === '' ? [] : [pair.split('=') as [string, string]])));
await using driver = await startDriver({
  name,
  nodeId: node,
  stateDir: state,
  socket: `${root}/plugins/${name}/csi.sock`,
  registration: `${root}/plugins_registry/${name}-reg.sock`,
  capabilities: values.capabilities.split(',').filter((each) => each !== '') as NodeRpcType[],
  ...(values.topology === '' ? {} : { topology }),
});
void driver;
console.log('ready');
await new Promise<void>((resolve) => {
  if (values.stdin) process.stdin.on('end', resolve).resume();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => resolve());
});
