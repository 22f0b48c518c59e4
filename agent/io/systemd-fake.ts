import { OpError } from '../../base/errors.ts';
import type { UnitProperty } from '../core/systemd-units.ts';
import { DbusWriter } from '../core/dbus/values.ts';
import type { DbusValue } from '../core/dbus/values.ts';
import { DbusError } from './dbus.ts';
import type { Systemd } from './systemd.ts';

/** The types by which systemd takes properties; a value of another is refused. */
const known: Readonly<Record<string, string>> = {
  ...{ Description: 's', Wants: 'as', DefaultDependencies: 'b', MemoryAccounting: 'b', CPUAccounting: 'b', IOAccounting: 'b', BlockIOAccounting: 'b' },
  ...{ TasksAccounting: 'b', MemoryMax: 't', MemoryLimit: 't', MemoryMin: 't', MemoryLow: 't', MemoryHigh: 't', CPUWeight: 't', CPUShares: 't' },
  ...{ CPUQuotaPeriodUSec: 't', CPUQuotaPerSecUSec: 't', TasksMax: 't', AllowedCPUs: 'ay' },
};
const onlyWhenMade = new Set(['Description', 'Wants', 'DefaultDependencies']);

/** systemd in memory: units with their properties. */
export class FakeSystemd implements Systemd {
  readonly units = new Map<string, Map<string, DbusValue>>();
  /** Every call, as a person reads it. */
  readonly log: string[] = [];
  number = 252;
  failure: OpError | null = null;

  async version(): Promise<number> {
    return this.number;
  }

  async startSlice(unit: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<'started' | 'exists'> {
    this.#check(unit, signal);
    if (this.units.has(unit)) return 'exists';
    this.units.set(unit, new Map(this.#checked(properties)));
    this.log.push(`start ${unit}`);
    // A slice stands in all those that its name names.
    const above = unit.replace(/(^|-)[^-]+\.slice$/, '.slice');
    if (above !== '.slice' && !this.units.has(above)) await this.startSlice(above, [], signal);
    return 'started';
  }

  async setProperties(unit: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<void> {
    this.#check(unit, signal);
    const made = properties.find(({ name }) => onlyWhenMade.has(name));
    if (made !== undefined) throw new DbusError(`set ${unit}`, 'org.freedesktop.DBus.Error.PropertyReadOnly', `Cannot set property ${made.name}`);
    const own = this.units.get(unit) ?? new Map<string, DbusValue>();
    for (const [name, value] of this.#checked(properties)) own.set(name, value);
    this.units.set(unit, own);
    this.log.push(`set ${unit} ${properties.map(({ name, value }) => `${name}=${textOf(value.value)}`).join(' ')}`);
  }

  async stop(unit: string, signal: AbortSignal): Promise<void> {
    this.#check(unit, signal);
    const below = `${unit.slice(0, -'.slice'.length)}-`;
    for (const each of this.units.keys()) if (each === unit || each.startsWith(below)) this.units.delete(each);
    this.log.push(`stop ${unit}`);
  }

  async kill(unit: string, signalNumber: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.log.push(`kill ${unit} ${signalNumber}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  #check(unit: string, signal: AbortSignal): void {
    if (signal.aborted) throw new OpError('aborted', `ask systemd for ${unit}`, 'stopped by the caller');
    if (this.failure !== null) throw this.failure;
    const name = /^([A-Za-z0-9:_.\\]+(-[A-Za-z0-9:_.\\]+)*|-)\.slice$/;
    if (!name.test(unit)) throw new DbusError(`ask for ${unit}`, 'org.freedesktop.DBus.Error.InvalidArgs', `Unit name ${unit} is not valid.`);
  }

  #checked(properties: readonly UnitProperty[]): [string, DbusValue][] {
    return properties.map(({ name, value: { signature, value } }) => {
      if (known[name] === undefined)
        throw new DbusError(`set ${name}`, 'org.freedesktop.DBus.Error.PropertyReadOnly', `Cannot set property ${name}, or unknown property.`);
      if (known[name] !== signature) throw new DbusError(`set ${name}`, 'org.freedesktop.DBus.Error.InvalidArgs', `${name} takes ${known[name]}`);
      new DbusWriter().values(signature, [value]);
      return [name, value];
    });
  }
}

function textOf(value: DbusValue): string {
  if (value instanceof Uint8Array) return [...value].join('.');
  return value === 0xffff_ffff_ffff_ffffn ? 'infinity' : `${value as bigint | string | boolean}`;
}
