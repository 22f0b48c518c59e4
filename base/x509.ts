import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, KeyObject, randomBytes, sign, verify } from 'node:crypto';
import { isIP } from 'node:net';
import { OpError } from './errors.ts';

/**
 * Writes the few X.509 structures a node and its control plane need: self-signed roots, leaves signed by a CA, and
 * PKCS #10 requests (RFC 5280, RFC 2986, DER by X.690). Reading certificates is node:crypto's X509Certificate;
 * only what that class does not give (raw names, requests) is read here.
 */

export interface Subject {
  commonName: string;
  /** O; Kubernetes reads groups from it. */
  organizations?: readonly string[];
}

export interface SubjectAltNames {
  dnsNames?: readonly string[];
  ipAddresses?: readonly string[];
}

export type ExtendedUsage = 'serverAuth' | 'clientAuth';

export interface CertificateRequestContent extends SubjectAltNames {
  subject: Subject;
}

export interface CertificateContent extends CertificateRequestContent {
  notBeforeMs: number;
  notAfterMs: number;
  usages?: readonly ExtendedUsage[];
  isCA?: boolean;
}

/** A CA, or the key that signs its own certificate. */
export interface Issuer {
  certificatePem: string;
  privateKeyPem: string;
}

export interface SignedPair {
  certificatePem: string;
  /** PKCS #8; a secret. */
  privateKeyPem: string;
}

// ---- DER, writing -------------------------------------------------------------------------------------------

type Der = Uint8Array;

function tlv(tag: number, ...parts: readonly Der[]): Der {
  const body = Buffer.concat(parts);
  let length: number[];
  if (body.length < 0x80) length = [body.length];
  else if (body.length < 0x100) length = [0x81, body.length];
  else if (body.length < 0x10000) length = [0x82, body.length >> 8, body.length & 0xff];
  else length = [0x83, body.length >> 16, (body.length >> 8) & 0xff, body.length & 0xff];
  return Buffer.concat([Uint8Array.from([tag, ...length]), body]);
}

const sequence = (...parts: Der[]): Der => tlv(0x30, ...parts);
const set = (...parts: Der[]): Der => tlv(0x31, ...parts);
const octets = (body: Der): Der => tlv(0x04, body);
const bits = (body: Der, unused = 0): Der => tlv(0x03, Uint8Array.from([unused]), body);
const utf8 = (text: string): Der => tlv(0x0c, Buffer.from(text, 'utf8'));
const explicit = (number: number, ...parts: Der[]): Der => tlv(0xa0 | number, ...parts);
const truth: Der = Uint8Array.from([0x01, 0x01, 0xff]);

function integer(bytes: Der): Der {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start++;
  const body = bytes.subarray(start);
  return (body[0] ?? 0) >= 0x80 ? tlv(0x02, Uint8Array.of(0), body) : tlv(0x02, body);
}

function oid(dotted: string): Der {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  const bytes: number[] = [first * 40 + second];
  for (const arc of rest) {
    const chunk = [arc & 0x7f];
    for (let left = arc >>> 7; left > 0; left >>>= 7) chunk.unshift((left & 0x7f) | 0x80);
    bytes.push(...chunk);
  }
  return tlv(0x06, Uint8Array.from(bytes));
}

/** UTCTime until 2049, GeneralizedTime after, as RFC 5280 4.1.2.5 demands. */
function time(ms: number): Der {
  const digits = new Date(ms).toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  return Number(digits.slice(0, 4)) < 2050 ? tlv(0x17, Buffer.from(digits.slice(2))) : tlv(0x18, Buffer.from(digits));
}

const OID = {
  commonName: '2.5.4.3',
  organization: '2.5.4.10',
  subjectKeyId: '2.5.29.14',
  keyUsage: '2.5.29.15',
  altName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  authorityKeyId: '2.5.29.35',
  extendedUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
  clientAuth: '1.3.6.1.5.5.7.3.2',
  extensionRequest: '1.2.840.113549.1.9.14',
  ecdsaSha256: '1.2.840.10045.4.3.2',
  ecdsaSha384: '1.2.840.10045.4.3.3',
  ecdsaSha512: '1.2.840.10045.4.3.4',
  ed25519: '1.3.101.112',
  rsaSha256: '1.2.840.113549.1.1.11',
} as const;

/** One RDN per attribute, O before CN, as Go's pkix.Name writes them. */
function name(subject: Subject): Der {
  const attribute = (type: string, value: string): Der => sequence(oid(type), utf8(value));
  const rdns: Der[] = [];
  const organizations = subject.organizations ?? [];
  if (organizations.length > 0) {
    const attributes = organizations.map((value) => attribute(OID.organization, value));
    rdns.push(set(...attributes.sort((a, b) => Buffer.compare(a, b))));
  }
  if (subject.commonName !== '') rdns.push(set(attribute(OID.commonName, subject.commonName)));
  return sequence(...rdns);
}

function ipBytes(text: string): Der {
  const kind = isIP(text);
  if (kind === 4) return Uint8Array.from(text.split('.').map(Number));
  if (kind !== 6) throw new OpError('invalid', 'write certificate', `${JSON.stringify(text)} is not an IP address`);
  const [plain = ''] = text.split('%');
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(plain);
  const normal = dotted === null ? plain : `${dotted[1]}${hex16(dotted[2], dotted[3])}:${hex16(dotted[4], dotted[5])}`;
  const [head = '', tail] = normal.split('::');
  const groups = (part: string): number[] => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16)));
  const left = groups(head);
  const right = tail === undefined ? [] : groups(tail);
  const all = tail === undefined ? left : [...left, ...Array<number>(8 - left.length - right.length).fill(0), ...right];
  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}

function hex16(high: string | undefined, low: string | undefined): string {
  return (Number(high) * 256 + Number(low)).toString(16);
}

function extension(type: string, critical: boolean, value: Der): Der {
  return critical ? sequence(oid(type), truth, octets(value)) : sequence(oid(type), octets(value));
}

function altNames(names: SubjectAltNames): Der[] {
  const entries = [
    ...(names.dnsNames ?? []).map((dns) => tlv(0x82, Buffer.from(dns, 'ascii'))),
    ...(names.ipAddresses ?? []).map((ip) => tlv(0x87, ipBytes(ip))),
  ];
  return entries.length === 0 ? [] : [extension(OID.altName, false, sequence(...entries))];
}

/** The signature algorithm and digest that go with a key, as Go chooses them: the digest is as long as the curve. */
function signing(key: KeyObject): { algorithm: Der; digest: string | null } {
  switch (key.asymmetricKeyType) {
    case 'ec': {
      const curve = key.asymmetricKeyDetails?.namedCurve;
      if (curve === 'secp384r1') return { algorithm: sequence(oid(OID.ecdsaSha384)), digest: 'sha384' };
      if (curve === 'secp521r1') return { algorithm: sequence(oid(OID.ecdsaSha512)), digest: 'sha512' };
      return { algorithm: sequence(oid(OID.ecdsaSha256)), digest: 'sha256' };
    }
    case 'rsa':
      return { algorithm: sequence(oid(OID.rsaSha256), tlv(0x05)), digest: 'sha256' };
    case 'ed25519':
      return { algorithm: sequence(oid(OID.ed25519)), digest: null };
    default:
      throw new OpError('unsupported', 'sign certificate', `keys of type ${key.asymmetricKeyType} are not supported; use ECDSA, Ed25519 or RSA`);
  }
}

function signed(content: Der, key: KeyObject): Der {
  const { algorithm, digest } = signing(key);
  return sequence(content, algorithm, bits(sign(digest, content, key)));
}

export function pem(label: string, der: Uint8Array): string {
  const body = Buffer.from(der)
    .toString('base64')
    .replaceAll(/.{64}(?=.)/g, '$&\n');
  return `-----BEGIN ${label}-----\n${body}\n-----END ${label}-----\n`;
}

/** All blocks of that label in a PEM text, decoded. */
export function unpem(label: string, text: string): Uint8Array[] {
  const blocks = text.matchAll(new RegExp(`-----BEGIN ${label}-----([^-]*)-----END ${label}-----`, 'g'));
  return [...blocks].map((block) => Buffer.from(block[1] ?? '', 'base64'));
}

// ---- DER, reading -------------------------------------------------------------------------------------------

interface Node {
  tag: number;
  /** With tag and length. */
  whole: Der;
  body: Der;
}

function malformed(detail: string): OpError {
  return new OpError('invalid', 'read DER', detail);
}

function readNode(bytes: Der, at: number): { node: Node; next: number } {
  const tag = bytes[at];
  const first = bytes[at + 1];
  if (tag === undefined || first === undefined) throw malformed('ends in the middle of an element');
  let length = first;
  let start = at + 2;
  if (first >= 0x80) {
    const count = first & 0x7f;
    if (count === 0 || count > 3) throw malformed('length of an unsupported form');
    length = 0;
    for (let index = 0; index < count; index++) length = length * 256 + (bytes[start + index] ?? 0);
    start += count;
  }
  const next = start + length;
  if (next > bytes.length) throw malformed('an element is longer than its container');
  return { node: { tag, whole: bytes.subarray(at, next), body: bytes.subarray(start, next) }, next };
}

function children(bytes: Der): Node[] {
  const nodes: Node[] = [];
  for (let at = 0; at < bytes.length;) {
    const { node, next } = readNode(bytes, at);
    nodes.push(node);
    at = next;
  }
  return nodes;
}

function child(node: Node, index: number): Node {
  const found = children(node.body)[index];
  if (found === undefined) throw malformed(`element ${index} is missing`);
  return found;
}

const root = (der: Der): Node => readNode(der, 0).node;
const isOid = (node: Node | undefined, dotted: string): boolean => node !== undefined && Buffer.compare(node.whole, oid(dotted)) === 0;

function readName(node: Node): Subject {
  const organizations: string[] = [];
  let commonName = '';
  for (const rdn of children(node.body)) {
    for (const attribute of children(rdn.body)) {
      const value = Buffer.from(child(attribute, 1).body).toString('utf8');
      if (isOid(child(attribute, 0), OID.organization)) organizations.push(value);
      if (isOid(child(attribute, 0), OID.commonName)) commonName = value;
    }
  }
  return { commonName, organizations };
}

/** The subject's name and the key identifier of a certificate, as they must stand in what it signs. */
function issuerFields(certificatePem: string): { name: Der; keyId: Der } {
  const [der] = unpem('CERTIFICATE', certificatePem);
  if (der === undefined) throw new OpError('invalid', 'read CA certificate', 'no PEM block CERTIFICATE in it');
  const fields = children(child(root(der), 0).body);
  const offset = fields[0]?.tag === 0xa0 ? 1 : 0;
  const subject = fields[offset + 4];
  const publicKey = fields[offset + 5];
  if (subject === undefined || publicKey === undefined) throw malformed('not a certificate');
  const extensions = fields.find((field) => field.tag === 0xa3);
  const own = extensions === undefined ? undefined : children(child(extensions, 0).body).find((entry) => isOid(child(entry, 0), OID.subjectKeyId));
  const value = own === undefined ? undefined : children(own.body).at(-1);
  return { name: subject.whole, keyId: value === undefined ? keyIdOf(publicKey.whole) : root(value.body).body };
}

/** RFC 5280 4.2.1.2, method 1. */
function keyIdOf(spki: Der): Der {
  const key = children(root(spki).body)[1];
  if (key === undefined) throw malformed('not a public key');
  return createHash('sha1').update(key.body.subarray(1)).digest();
}

// ---- what callers use ---------------------------------------------------------------------------------------

/** A new P-256 key, PEM: PKCS #8, or SEC 1 as Kubernetes' own programs write it. */
export function newPrivateKeyPem(form: 'pkcs8' | 'sec1' = 'pkcs8'): string {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: form, format: 'pem' }).toString();
}

/** The public half of a private key, SPKI PEM. */
export function publicKeyPemOf(privateKeyPem: string): string {
  return createPublicKey(privateKeyPem).export({ type: 'spki', format: 'pem' }).toString();
}

function spkiOf(key: KeyObject): Der {
  return key.export({ type: 'spki', format: 'der' });
}

function certificate(content: CertificateContent, publicKey: KeyObject, issuer: { name: Der; keyId: Der; key: KeyObject }): string {
  const spki = spkiOf(publicKey);
  const usages = content.usages ?? [];
  // A positive number of 127 bits: at most 20 octets and never zero (RFC 5280 4.1.2.2).
  const serial = randomBytes(16);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  // keyCertSign and digitalSignature for a CA; digitalSignature for a leaf, and keyEncipherment where RSA needs it.
  const leafBits = publicKey.asymmetricKeyType === 'rsa' ? bits(Uint8Array.of(0b1010_0000), 5) : bits(Uint8Array.of(0b1000_0000), 7);
  const usage = content.isCA === true ? bits(Uint8Array.of(0b1010_0100), 2) : leafBits;
  const extensions = [
    extension(OID.keyUsage, true, usage),
    ...(usages.length === 0 ? [] : [extension(OID.extendedUsage, false, sequence(...usages.map((each) => oid(OID[each]))))]),
    extension(OID.basicConstraints, true, content.isCA === true ? sequence(truth) : sequence()),
    extension(OID.subjectKeyId, false, octets(keyIdOf(spki))),
    extension(OID.authorityKeyId, false, sequence(tlv(0x80, issuer.keyId))),
    ...altNames(content),
  ];
  const body = sequence(
    explicit(0, integer(Uint8Array.of(2))),
    integer(serial),
    signing(issuer.key).algorithm,
    issuer.name,
    sequence(time(content.notBeforeMs), time(content.notAfterMs)),
    name(content.subject),
    spki,
    explicit(3, sequence(...extensions)),
  );
  return pem('CERTIFICATE', signed(body, issuer.key));
}

/** A certificate that signs itself, with `privateKeyPem` or a new key: a CA's root, or a serving certificate nobody vouches for. */
export function selfSigned(content: CertificateContent, privateKeyPem: string = newPrivateKeyPem()): SignedPair {
  const key = createPrivateKey(privateKeyPem);
  const publicKey = createPublicKey(key);
  const issuer = { name: name(content.subject), keyId: keyIdOf(spkiOf(publicKey)), key };
  return { certificatePem: certificate(content, publicKey, issuer), privateKeyPem };
}

/** A certificate over somebody's public key, signed by `issuer`. */
export function signCertificate(content: CertificateContent, publicKeyPem: string, issuer: Issuer): string {
  const { name: issuerName, keyId } = issuerFields(issuer.certificatePem);
  return certificate(content, createPublicKey(publicKeyPem), { name: issuerName, keyId, key: createPrivateKey(issuer.privateKeyPem) });
}

/** A new key and its certificate, signed by `issuer`. */
export function issueCertificate(content: CertificateContent, issuer: Issuer): SignedPair {
  const privateKeyPem = newPrivateKeyPem();
  return { certificatePem: signCertificate(content, publicKeyPemOf(privateKeyPem), issuer), privateKeyPem };
}

/** A PKCS #10 request, PEM, as spec.request of a CertificateSigningRequest carries it (base64 of it, there). */
export function certificateRequest(content: CertificateRequestContent, privateKeyPem: string): string {
  const key = createPrivateKey(privateKeyPem);
  const sans = altNames(content);
  const attributes = sans.length === 0 ? [] : [sequence(oid(OID.extensionRequest), set(sequence(...sans)))];
  const body = sequence(integer(Uint8Array.of(0)), name(content.subject), spkiOf(createPublicKey(key)), explicit(0, ...attributes));
  return pem('CERTIFICATE REQUEST', signed(body, key));
}

/** The digest of a signature algorithm; whoever signs with something else is not understood. */
function digestOf(algorithm: Node): string | null {
  if (isOid(algorithm, OID.ed25519)) return null;
  if (isOid(algorithm, OID.ecdsaSha384)) return 'sha384';
  return isOid(algorithm, OID.ecdsaSha512) ? 'sha512' : 'sha256';
}

export interface ReadRequest extends CertificateRequestContent {
  subject: Required<Subject>;
  dnsNames: string[];
  /** Printable form; IPv6 not shortened. */
  ipAddresses: string[];
  publicKeyPem: string;
}

/** Reads a PKCS #10 request and checks that its signature is by its own key. Throws OpError `invalid`. */
export function readCertificateRequest(text: string): ReadRequest {
  const [der] = unpem('CERTIFICATE REQUEST', text);
  if (der === undefined) throw new OpError('invalid', 'read certificate request', 'no PEM block CERTIFICATE REQUEST in it');
  const top = root(der);
  const body = child(top, 0);
  const publicKey = publicKeyOf(child(body, 2).whole);
  if (!verify(digestOf(child(child(top, 1), 0)), body.whole, publicKey, child(top, 2).body.subarray(1))) {
    throw new OpError('invalid', 'read certificate request', 'its signature does not fit its key');
  }
  const subject = readName(child(body, 1));
  const dnsNames: string[] = [];
  const ipAddresses: string[] = [];
  const attributes = children(body.body).find((field) => field.tag === 0xa0);
  for (const attribute of attributes === undefined ? [] : children(attributes.body)) {
    if (!isOid(child(attribute, 0), OID.extensionRequest)) continue;
    for (const entry of children(child(child(attribute, 1), 0).body)) {
      const value = children(entry.body).at(-1);
      if (!isOid(child(entry, 0), OID.altName) || value === undefined) continue;
      for (const alt of children(root(value.body).body)) {
        if (alt.tag === 0x82) dnsNames.push(Buffer.from(alt.body).toString('ascii'));
        if (alt.tag === 0x87) ipAddresses.push(ipText(alt.body));
      }
    }
  }
  return {
    subject: { commonName: subject.commonName, organizations: subject.organizations ?? [] },
    dnsNames,
    ipAddresses,
    publicKeyPem: publicKey.export({ type: 'spki', format: 'pem' }).toString(),
  };
}

function publicKeyOf(spki: Der): KeyObject {
  try {
    return createPublicKey({ key: Buffer.from(spki), format: 'der', type: 'spki' });
  } catch (cause) {
    throw new OpError('invalid', 'read certificate request', 'its public key cannot be read', { cause });
  }
}

function ipText(bytes: Der): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups: string[] = [];
  for (let at = 0; at + 1 < bytes.length; at += 2) groups.push((((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)).toString(16));
  return groups.join(':');
}
