export { createCriClient, type CriClient } from './client.ts';
export { microsOf, parseLogLine } from './core/log-lines.ts';
export { RpcError, runtimeMessage } from './errors.ts';
export { connectRuntime } from './grpc.ts';
export { readLog } from './io/log-read.ts';
export { compose, type Interceptor } from './transport.ts';
export { rpcStatuses } from './core/status.ts';
export { spdyWire, webSocketAccept, type Channel, type Wire } from './io/exec-wire.ts';
export { webSocketClose, webSocketMessage, webSocketPong, WebSocketReader } from './core/websocket.ts';
