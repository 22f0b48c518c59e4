/** The messages' frame, which all of netlink shares. */
export * from '../../base/netlink.ts';
