declare module 'undici/lib/dispatcher/client.js' {
  import type { Client } from 'undici';
  const client: typeof Client;
  export default client;
}

declare module 'undici/lib/dispatcher/dispatcher.js' {
  const dispatcher: { readonly prototype: object };
  export default dispatcher;
}

declare module 'undici/lib/api/api-request.js' {
  const request: (...args: unknown[]) => unknown;
  export default request;
}

declare module 'undici/lib/core/symbols.js' {
  const symbols: { readonly kHTTP2Session: symbol };
  export default symbols;
}
