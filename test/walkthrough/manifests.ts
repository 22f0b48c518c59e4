import { readFileSync } from 'node:fs';

/** The Deployment and Service that the documents begin with. */
export const web = readFileSync(new URL('../../examples/web.yaml', import.meta.url), 'utf8');

/** The Deployment of namespace `shop`, with limits and a readiness probe. */
export const shop = (image = 'nginx:1.30-alpine'): string => `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
        - name: nginx
          image: ${image}
          ports:
            - containerPort: 80
          resources:
            requests: { cpu: 100m, memory: 64Mi }
            limits: { memory: 128Mi }
          readinessProbe:
            httpGet: { path: /, port: 80 }
            periodSeconds: 5
`;

export const shopService = `apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
spec:
  selector: { app: web }
  ports: [{ port: 80, targetPort: 80 }]
`;

export const redisConfig = `apiVersion: v1
kind: Secret
metadata: { name: redis-auth, namespace: shop }
stringData: { password: s3cr3t-example }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: redis-config, namespace: shop }
data:
  redis.conf: |
    maxmemory 64mb
    maxmemory-policy allkeys-lru
`;

/** One pod as a document; `spec` is YAML at two blanks. */
export const pod = (name: string, spec: string, namespace = 'default', labels = '{}'): string => `apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: ${namespace}, labels: ${labels} }
spec:
${spec.replaceAll(/^/gm, '  ')}
`;
