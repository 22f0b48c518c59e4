import {
  Server,
  ServerCredentials,
  type sendUnaryData,
  type ServerUnaryCall,
  type ServerWritableStream,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import { fromJSON, type ServiceDefinition } from '@grpc/proto-loader';
import api from '../proto/cri/api.json' with { type: 'json' };
import { RpcError } from './errors.ts';
import type { FakeRuntime } from './fake.ts';
import { dialTarget } from './grpc.ts';
import type { RuntimeCall, ServiceName } from './transport.ts';

async function answer(result: Promise<object>, done: sendUnaryData<object>, failure: (error: unknown) => { code: number; details: string }): Promise<void> {
  try {
    done(null, await result);
  } catch (error) {
    done(failure(error));
  }
}

async function pour(runtime: FakeRuntime, call: RuntimeCall, into: ServerWritableStream<object, object>, failure: (error: unknown) => object): Promise<void> {
  const stop = new AbortController();
  into.on('cancelled', () => stop.abort());
  try {
    for await (const message of runtime.stream(call, { timeoutMs: Infinity, signal: stop.signal })) into.write(message);
    into.end();
  } catch (error) {
    into.emit('error', failure(error));
  }
}

/** The fake runtime behind a true gRPC server on a unix socket. */
export async function serveFake(runtime: FakeRuntime, path: string): Promise<Server> {
  const definitions = fromJSON(api as unknown as Parameters<typeof fromJSON>[0], { longs: String, enums: String, defaults: true, oneofs: true });
  const made = new Server({ 'grpc.max_receive_message_length': -1 });
  for (const service of ['RuntimeService', 'ImageService'] as ServiceName[]) {
    const definition = definitions[`runtime.v1.${service}`] as ServiceDefinition;
    const handlers: UntypedServiceImplementation = {};
    for (const [method, { responseStream }] of Object.entries(definition)) {
      const failure = (error: unknown): { code: number; details: string } =>
        error instanceof RpcError ? { code: error.grpcCode, details: error.description } : { code: 2, details: String(error) };
      if (responseStream) {
        handlers[method] = (call: ServerWritableStream<object, object>) => void pour(runtime, { service, method, request: call.request }, call, failure);
      } else {
        handlers[method] = (call: ServerUnaryCall<object, object>, done: sendUnaryData<object>) => {
          const stop = new AbortController();
          call.on('cancelled', () => stop.abort());
          void answer(runtime.call({ service, method, request: call.request }, { timeoutMs: Infinity, signal: stop.signal }), done, failure);
        };
      }
    }
    made.addService(definition, handlers);
  }
  await new Promise<void>((resolve, reject) => {
    made.bindAsync(dialTarget(path), ServerCredentials.createInsecure(), (error) => (error === null ? resolve() : reject(error)));
  });
  return made;
}
