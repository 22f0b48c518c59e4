import { APPS } from './strategies-apps.ts';
import { CORE } from './strategies-core.ts';
import { OTHERS } from './strategies-others.ts';
import { PODS } from './strategy-pods.ts';
import { SERVICES } from './strategy-services.ts';
import type { Strategy } from './strategy.ts';

const ALL = new Map<string, Strategy>(Object.entries({ '/pods': PODS, '/services': SERVICES, ...CORE, ...APPS, ...OTHERS }));

const PLAIN: Strategy = { nameRule: 'subdomain', hasGeneration: false };

/** The strategy of a collection (`group/resource`); kinds with nothing special share one. */
export function strategyOf(collection: string): Strategy {
  return ALL.get(collection) ?? PLAIN;
}
