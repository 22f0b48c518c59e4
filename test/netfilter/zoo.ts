import type { Rng } from '../../base/rng.ts';
import { service, slice, type EndpointSpec } from './lab.ts';

/** Services of every kind, and changes to them at random: what two proxies are given alike. */

export interface Told {
  resource: 'services' | 'endpointslices';
  object: { metadata: { namespace: string; name: string } };
  gone?: boolean;
}

type Spec = Record<string, unknown>;

/** As the API server hands it out: defaults filled in. */
function put(name: string, clusterIPs: string[], ports: Spec[], spec: Spec = {}, ingress?: { ip: string; ipMode?: string }[]): Told {
  const families = clusterIPs.map((ip) => (ip.includes(':') ? 'IPv6' : 'IPv4'));
  const external = spec['type'] === 'NodePort' || spec['type'] === 'LoadBalancer' || spec['externalIPs'] !== undefined;
  const full = {
    type: 'ClusterIP',
    sessionAffinity: 'None',
    internalTrafficPolicy: 'Cluster',
    ipFamilies: families,
    ...(external ? { externalTrafficPolicy: 'Cluster' } : {}),
    ...(spec['sessionAffinity'] === 'ClientIP' ? { sessionAffinityConfig: { clientIP: { timeoutSeconds: 10_800 } } } : {}),
    ...spec,
  };
  const named = ports.map((port) => ({ protocol: 'TCP', ...port })) as never;
  return { resource: 'services', object: service(name, clusterIPs, named, { spec: full, ...(ingress === undefined ? {} : { ingress }) }) };
}

function endpoints(
  of: string,
  port: { name?: string; port: number; protocol?: string },
  list: EndpointSpec[],
  more: { name?: string; addressType?: string } = {},
): Told {
  return { resource: 'endpointslices', object: slice(of, { name: '', protocol: 'TCP', ...port }, list, more) };
}

const near: EndpointSpec = { ip: '10.244.0.3' };
const near2: EndpointSpec = { ip: '10.244.0.4' };
const far: EndpointSpec = { ip: '10.244.1.5', node: 'node-b' };
const far2: EndpointSpec = { ip: '10.244.1.6', node: 'node-b' };
const web = { name: 'web', port: 8080 };
const p80 = { name: 'web', port: 80 };
const vip = [{ ip: '203.0.113.10' }, { ip: '2001:db8:3::10' }];

export function zoo(): Told[] {
  const outside = { type: 'LoadBalancer', externalIPs: ['198.51.100.77'] };
  return [
    put('plain', ['10.96.0.10'], [{ port: 80 }]),
    endpoints('plain', { port: 80 }, [far, near, near2]),
    put('named', ['10.96.0.11'], [p80, { name: 'dns', port: 53, protocol: 'UDP' }, { name: 'sip', port: 5060, protocol: 'SCTP' }]),
    endpoints('named', web, [near, near2]),
    endpoints('named', { name: 'dns', port: 5353, protocol: 'UDP' }, [near], { name: 'named-2' }),
    endpoints('named', { name: 'sip', port: 5060, protocol: 'SCTP' }, [far], { name: 'named-3' }),
    endpoints('named', { name: 'web', port: 9090 }, [near], { name: 'named-4' }),
    endpoints('named', web, [near], { name: 'named-5' }),
    put('empty', ['10.96.0.12'], [{ ...p80, nodePort: 30012 }], { ...outside, externalIPs: ['198.51.100.12'] }, [{ ip: '203.0.113.12' }]),
    put('sticky', ['10.96.0.13'], [{ ...p80, nodePort: 30013 }], { type: 'NodePort', sessionAffinity: 'ClientIP' }),
    endpoints('sticky', web, [near, near2, far]),
    put('both', ['10.96.0.14', 'fd00:96::14'], [{ ...p80, nodePort: 30014 }], { ...outside, externalIPs: ['198.51.100.14', '2001:db8:1::14'] }, vip),
    endpoints('both', web, [near, far]),
    endpoints('both', web, [{ ip: 'fd00:10:244::3' }, { ip: 'fd00:10:244::1:2' }, { ip: 'fd00:10:244::1' }], { name: 'both-v6' }),
    put('v6', ['fd00:96::15'], [p80], {}),
    endpoints('v6', web, [{ ip: 'fd00:10:244::4' }]),
    put(
      'outer-local',
      ['10.96.0.16'],
      [{ ...p80, nodePort: 30016 }],
      { ...outside, externalIPs: ['198.51.100.16'], externalTrafficPolicy: 'Local', healthCheckNodePort: 32016 },
      [{ ip: '203.0.113.16' }],
    ),
    endpoints('outer-local', web, [near, far, far2]),
    put(
      'outer-none',
      ['10.96.0.17'],
      [{ ...p80, nodePort: 30017 }],
      { ...outside, externalIPs: ['198.51.100.17'], externalTrafficPolicy: 'Local', healthCheckNodePort: 32017 },
      [{ ip: '203.0.113.17' }],
    ),
    endpoints('outer-none', web, [far]),
    put('inner-local', ['10.96.0.18'], [p80], { internalTrafficPolicy: 'Local' }),
    endpoints('inner-local', web, [near, far]),
    put('inner-none', ['10.96.0.19'], [{ ...p80, nodePort: 30019 }], { type: 'NodePort', internalTrafficPolicy: 'Local' }),
    endpoints('inner-none', web, [far]),
    put('ranges', ['10.96.0.20'], [{ ...p80, nodePort: 30020 }], { type: 'LoadBalancer', loadBalancerSourceRanges: ['192.0.2.0/26', ' 10.0.0.0/8'] }, [
      { ip: '203.0.113.20' },
    ]),
    endpoints('ranges', web, [near]),
    put('anybody', ['10.96.0.21'], [{ ...p80, nodePort: 30021 }], { type: 'LoadBalancer', loadBalancerSourceRanges: ['0.0.0.0/0', '10.0.0.0/8'] }, [
      { ip: '203.0.113.21' },
    ]),
    endpoints('anybody', web, [near]),
    put('proxied', ['10.96.0.22'], [{ ...p80, nodePort: 30022 }], { type: 'LoadBalancer' }, [{ ip: '203.0.113.22', ipMode: 'Proxy' }]),
    endpoints('proxied', web, [near]),
    put('ending', ['10.96.0.23'], [p80]),
    endpoints('ending', web, [
      { ...near, ready: false, serving: true, terminating: true },
      { ...far, ready: false, serving: false, terminating: true },
    ]),
    put('zoned', ['10.96.0.24'], [p80]),
    endpoints('zoned', web, [
      { ...near, zones: ['a'] },
      { ...far, zones: ['b'] },
    ]),
    put('both-local', ['10.96.0.25'], [{ ...p80, nodePort: 30025 }], {
      type: 'NodePort',
      internalTrafficPolicy: 'Local',
      externalTrafficPolicy: 'Local',
      sessionAffinity: 'ClientIP',
    }),
    endpoints('both-local', web, [{ ...near, ready: false, serving: true, terminating: true }, far]),
    put('headless', ['None'], [p80]),
    endpoints('headless', web, [near]),
    {
      resource: 'services',
      object: service('named-elsewhere', [''], [], { spec: { type: 'ExternalName', externalName: 'x.example', sessionAffinity: 'None' } }),
    },
  ];
}

/** One change to one of a few Services or its endpoints. */
export function randomChange(rng: Rng): Told {
  const number = rng.int(6);
  const name = `r${number}`;
  const dual = number % 2 === 0;
  const protocol = number % 3 === 0 ? 'UDP' : 'TCP';
  if (rng.int(2) === 0) {
    const v6 = dual && rng.int(2) === 0;
    const list: EndpointSpec[] = Array.from({ length: rng.int(4) }, (_, index) => {
      const state = rng.pick(['ready', 'ready', 'ready', 'ending', 'unready']);
      const ready = state === 'ready';
      return {
        ip: v6 ? `fd00:10:244::${index + 2}` : `10.244.0.${index + 2}`,
        node: rng.pick(['node-a', 'node-b']),
        ready,
        serving: state !== 'unready',
        terminating: state === 'ending',
        ...(rng.int(3) === 0 ? { zones: [rng.pick(['a', 'b'])] } : {}),
      };
    });
    const told = endpoints(name, { name: 'p', port: 8080, protocol }, list, { name: `${name}-${v6 ? 'v6' : 'v4'}`, addressType: v6 ? 'IPv6' : 'IPv4' });
    return rng.int(6) === 0 ? { ...told, gone: true } : told;
  }
  const type = rng.pick(['ClusterIP', 'NodePort', 'LoadBalancer']);
  const local = type !== 'ClusterIP' && rng.int(2) === 0;
  const spec: Spec = {
    type,
    sessionAffinity: rng.pick(['None', 'ClientIP']),
    internalTrafficPolicy: rng.pick(['Cluster', 'Local']),
    ...(type === 'ClusterIP' ? {} : { externalTrafficPolicy: local ? 'Local' : 'Cluster' }),
    ...(type === 'LoadBalancer' && local ? { healthCheckNodePort: 32_100 + number } : {}),
    ...(type !== 'ClusterIP' && rng.int(2) === 0 ? { externalIPs: [`198.51.100.${100 + number}`] } : {}),
    ...(type === 'LoadBalancer' && rng.int(2) === 0 ? { loadBalancerSourceRanges: rng.pick([['192.0.2.0/24'], ['172.16.0.0/12', '2001:db8::/64']]) } : {}),
  };
  const ingress = type === 'LoadBalancer' ? [{ ip: `203.0.113.${100 + number}` }, { ip: `2001:db8:3::${100 + number}` }] : undefined;
  const addresses = [`10.96.1.${number}`, ...(dual ? [`fd00:96::1:${number}`] : [])];
  const told = put(name, addresses, [{ name: 'p', port: 80, protocol, ...(type === 'ClusterIP' ? {} : { nodePort: 30_100 + number }) }], spec, ingress);
  return rng.int(6) === 0 ? { ...told, gone: true } : told;
}
