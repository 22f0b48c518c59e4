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

export interface RedisSetOptions {
  /** Goes into its container, at ten blanks. */
  readonly more?: string;
  readonly graceSeconds?: number;
  readonly replicas?: number;
  readonly image?: string;
}

/** The StatefulSet of the documents with its headless Service, whose password and settings are in `redisConfig`. */
export const redisSet = ({ more = '', graceSeconds = 30, replicas = 1, image = 'redis:8.2-alpine' }: RedisSetOptions = {}): string => `apiVersion: v1
kind: Service
metadata: { name: redis, namespace: shop }
spec: { clusterIP: None, selector: { app: redis }, ports: [{ port: 6379 }] }
---
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: redis, namespace: shop }
spec:
  serviceName: redis
  replicas: ${replicas}
  selector: { matchLabels: { app: redis } }
  template:
    metadata: { labels: { app: redis } }
    spec:
      terminationGracePeriodSeconds: ${graceSeconds}
      containers:
        - name: redis
          image: ${image}
          command: [redis-server, /etc/redis/redis.conf]
          env: [{ name: REDIS_PASSWORD, valueFrom: { secretKeyRef: { name: redis-auth, key: password } } }]
          ${more}
          volumeMounts: [{ name: config, mountPath: /etc/redis }, { name: data, mountPath: /data }]
      volumes: [{ name: config, configMap: { name: redis-config } }]
  volumeClaimTemplates:
    - metadata: { name: data }
      spec: { accessModes: [ReadWriteOnce], storageClassName: standard, resources: { requests: { storage: 1Gi } } }
`;

/** One pod as a document; `spec` is YAML at two blanks. */
export const pod = (name: string, spec: string, namespace = 'default', labels = '{}'): string => `apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: ${namespace}, labels: ${labels} }
spec:
${spec.replaceAll(/^/gm, '  ')}
`;
