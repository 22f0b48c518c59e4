import type { Sys } from '../../base/sys/types.ts';

const NETLINK_NETFILTER = 12;

/** Sends nfnetlink messages in `netns` (ours when absent) and collects the raw answers; errors in them are the caller's to decode. */
export type NetfilterSend = (messages: Uint8Array, expectAnswers: number) => Promise<Uint8Array[]>;

export function netfilterSocket(sys: Sys, options: { netns?: string }, timeoutMs: number): NetfilterSend {
  return (messages, expectAnswers) =>
    sys.netlink({
      family: NETLINK_NETFILTER,
      messages,
      expectAnswers,
      timeoutMs,
      ...(options.netns === undefined ? {} : { netns: options.netns }),
    });
}
