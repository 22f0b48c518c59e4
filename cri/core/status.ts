/** gRPC's statuses in the order of their numbers, as Go names them. */
export const rpcStatuses = [
  'OK',
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
] as const;

export type RpcStatus = (typeof rpcStatuses)[number];

/** By name in any spelling: `DeadlineExceeded`, `deadline-exceeded`, `DEADLINE_EXCEEDED`. */
export function statusNamed(name: string): RpcStatus | undefined {
  const plain = name.toLowerCase().replaceAll(/[^a-z]/g, '');
  return rpcStatuses.find((status) => status.toLowerCase() === plain);
}
