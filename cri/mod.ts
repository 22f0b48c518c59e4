export { createCriClient, type ClientOptions, type CriClient, type ImageService, type RuntimeService } from './client.ts';
export { rpcError, RpcError, runtimeMessage, type RpcStatus } from './errors.ts';
export { failpoints, type Failpoints } from './failpoint.ts';
export { connectRuntime, dialTarget } from './grpc.ts';
export { CallRenderer } from './render.ts';
export { compose, type CallOptions, type Interceptor, type RuntimeCall, type ServiceName, type Transport } from './transport.ts';
