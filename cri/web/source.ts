import type { WebEvent } from '../core/web-wire.ts';

/** Reads what the server tells, from where it was when the connection breaks. */
export function readEvents(take: (event: WebEvent) => void, broken: () => void): void {
  const source = new EventSource('events');
  source.addEventListener('message', ({ data }: MessageEvent<string>) => take(JSON.parse(data) as WebEvent));
  source.addEventListener('error', broken);
}
