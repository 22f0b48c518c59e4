export { createCriClient, type CriClient } from './client.ts';
export { RpcError, runtimeMessage } from './errors.ts';
export { connectRuntime } from './grpc.ts';
export { compose, type Interceptor } from './transport.ts';
