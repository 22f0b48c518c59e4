/** What is told about one object. Fields that are not set do not count. */
export interface ToldEvent {
  readonly target: {
    readonly apiVersion: string;
    readonly kind: string;
    readonly namespace?: string;
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion?: string;
    readonly fieldPath?: string;
  };
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
}

/** What to send: a new Event, or a higher count of one that was sent before. */
export interface EventPlan {
  /** Names the record; give it back to `sent`. */
  readonly key: string;
  readonly message: string;
  readonly count: number;
  readonly firstMs: number;
  /** Name of the Event that is there already; null: make a new one. */
  readonly existing: string | null;
}

const spamBurst = 25;
/** One more Event for the same object every five minutes. */
const spamRefillMs = 300_000;
/** So many different messages of one reason within the interval become one combined Event. */
const similarMax = 10;
const similarIntervalMs = 600_000;
const cacheMax = 4_096;

interface Bucket {
  tokens: number;
  atMs: number;
}
interface Similar {
  messages: Set<string>;
  lastMs: number;
}
interface Sent {
  name: string;
  count: number;
  firstMs: number;
}

/**
 * Keeps Events few, by the rules every Kubernetes component follows (client-go's correlator): a budget per object,
 * similar ones combined, equal ones counted. Memory is bounded; what is forgotten costs a new Event, nothing else.
 */
export class EventCorrelator {
  readonly #buckets = new Map<string, Bucket>();
  readonly #similar = new Map<string, Similar>();
  readonly #sent = new Map<string, Sent>();

  /** Null: the object has used up its budget for events of this type. */
  observe(event: ToldEvent, nowMs: number): EventPlan | null {
    const { target, type, reason } = event;
    const object = [target.kind, target.namespace ?? '', target.name, target.uid, target.apiVersion].join('\u0000');
    const group = [object, type, reason].join('\u0000');
    const { key, message } = this.#combine(event, group, nowMs);
    const known = this.#sent.get(key);
    // The budget is spent by what would be written, counted ones too; warnings have one of their own.
    if (!this.#spend([object, type].join('\u0000'), nowMs)) return null;
    if (known === undefined) return { key, message, count: 1, firstMs: nowMs, existing: null };
    return { key, message, count: known.count + 1, firstMs: known.firstMs, existing: known.name };
  }

  /** The API server has it. */
  sent(plan: EventPlan, name: string): void {
    remember(this.#sent, plan.key, { name, count: plan.count, firstMs: plan.firstMs });
  }

  /** The Event that was to be counted is gone. */
  lost(plan: EventPlan): void {
    this.#sent.delete(plan.key);
  }

  #combine(event: ToldEvent, group: string, nowMs: number): { key: string; message: string } {
    const known = this.#similar.get(group);
    const record = known === undefined || nowMs - known.lastMs > similarIntervalMs ? { messages: new Set<string>(), lastMs: nowMs } : known;
    record.lastMs = nowMs;
    record.messages.add(event.message);
    remember(this.#similar, group, record);
    if (record.messages.size < similarMax) return { key: [group, event.target.fieldPath ?? '', event.message].join('\u0000'), message: event.message };
    const [oldest] = record.messages;
    if (oldest !== undefined) record.messages.delete(oldest);
    return { key: group, message: `(combined from similar events): ${event.message}` };
  }

  #spend(object: string, nowMs: number): boolean {
    const bucket = this.#buckets.get(object) ?? { tokens: spamBurst, atMs: nowMs };
    bucket.tokens = Math.min(spamBurst, bucket.tokens + Math.max(0, nowMs - bucket.atMs) / spamRefillMs);
    bucket.atMs = nowMs;
    remember(this.#buckets, object, bucket);
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }
}

/** Puts the entry last and drops the first when there are too many. */
function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= cacheMax) return;
  const [first] = map.keys();
  if (first !== undefined) map.delete(first);
}
