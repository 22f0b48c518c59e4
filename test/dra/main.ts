import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { served, serveGrpc, serviceOf } from '../../agent/io/grpc.ts';
import dra from '../../proto/plugins/dra.json' with { type: 'json' };
import type { DRAPluginMethods } from '../../proto/plugins/dra.ts';
import health from '../../proto/plugins/dra_health.json' with { type: 'json' };
import type { DRAResourceHealthMethods } from '../../proto/plugins/dra_health.ts';
import registration from '../../proto/plugins/registration.json' with { type: 'json' };
import type { RegistrationMethods } from '../../proto/plugins/registration.ts';

/*
 * A driver of dynamic resources: `node test/dra/main.ts --root /var/lib/kubelet --state DIR --name N`. Each claim gives
 * its containers one variable, by a CDI file in /var/run/cdi; calls are written down in DIR/calls.jsonl.
 */

const { values } = parseArgs({
  options: {
    name: { type: 'string', default: 'dra.nodelet.test' },
    root: { type: 'string', default: '/var/lib/kubelet' },
    state: { type: 'string' },
    pool: { type: 'string', default: 'pool' },
    versions: { type: 'string', default: 'v1.DRAPlugin,v1.DRAResourceHealth' },
  },
});
const { name, root, state = '', pool } = values;
mkdirSync(state, { recursive: true });
mkdirSync('/var/run/cdi', { recursive: true });
const file = (uid: string): string => `/var/run/cdi/${name}-${uid}.json`;
const record = (method: string, request: object): void => appendFileSync(`${state}/calls.jsonl`, `${JSON.stringify({ method, request, status: 'OK' })}\n`);

const endpoint = `${root}/plugins/${name}/dra.sock`;
const known = `${root}/plugins_registry/${name}-reg.sock`;
mkdirSync(`${root}/plugins/${name}`, { recursive: true });
for (const path of [endpoint, known]) rmSync(path, { force: true });
const plugin = served(serviceOf<DRAPluginMethods>(dra, 'k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin'), {
  NodePrepareResources(request) {
    record('NodePrepareResources', request);
    const claims = request.claims.map(({ uid = '' }) => {
      const device = { name: uid, containerEdits: { env: [`CLAIM=${uid}`] } };
      writeFileSync(file(uid), JSON.stringify({ cdiVersion: '0.5.0', kind: `${name}/claim`, devices: [device] }));
      return [uid, { devices: [{ poolName: pool, deviceName: 'one', requestNames: ['r'], cdiDeviceIds: [`${name}/claim=${uid}`] }] }];
    });
    return { claims: Object.fromEntries(claims) as object };
  },
  NodeUnprepareResources(request) {
    record('NodeUnprepareResources', request);
    for (const { uid = '' } of request.claims) rmSync(file(uid), { force: true });
    return { claims: Object.fromEntries(request.claims.map(({ uid }) => [uid, {}])) as object };
  },
});
const ends = new Promise<void>((resolve) => process.stdin.on('end', resolve).resume());
const devices = served(serviceOf<DRAResourceHealthMethods>(health, 'v1.DRAResourceHealth'), {
  async *NodeWatchResources() {
    yield { devices: [{ device: { poolName: pool, deviceName: 'one' }, health: 'HEALTHY', message: 'fine', healthCheckTimeoutSeconds: 600 }] };
    await ends;
  },
});
await using service = await serveGrpc(endpoint, [plugin, devices]);
await using registrar = await serveGrpc(known, [
  served(serviceOf<RegistrationMethods>(registration, 'pluginregistration.Registration'), {
    GetInfo: () => ({ type: 'DRAPlugin', name, endpoint, supportedVersions: values.versions.split(',') }),
    NotifyRegistrationStatus(status) {
      record('NotifyRegistrationStatus', status);
      return {};
    },
  }),
]);
void [service, registrar];
await ends;
for (const path of [endpoint, known]) rmSync(path, { force: true });
