import type { ReportOptions } from '../report.ts';
import type { Commands } from './command.ts';

export function reportCommand({ host, add, done }: Commands): void {
  add('report <file>', 'a recording as a page, a sequence diagram, a trace or a summary', [
    './nodelet cri report boot.crirec --html -o boot.html        one page, nothing loaded from elsewhere',
    './nodelet cri report boot.crirec --mermaid --pod default/web -o web.md',
    './nodelet cri report boot.crirec --perfetto -o boot.json    open it at ui.perfetto.dev or chrome://tracing',
    './nodelet cri report boot.crirec --otlp | curl -d@- -H content-type:application/json localhost:4318/v1/traces',
  ])
    .option('--html', 'summary, methods, failures, a picture for each pod', false)
    .option('--mermaid', 'a sequence diagram of one pod, for Markdown (fenced in a file that ends with .md)', false)
    .option('--perfetto', 'the trace event format: pods as processes, containers as threads', false)
    .option('--otlp', 'OpenTelemetry’s JSON: a trace for each pod, a span for each call', false)
    .option('--pod <namespace/name>', 'only that pod; * stands for any text')
    .option('-o, --output <file>', 'write it there, readable by its owner only')
    .option('--force', 'overwrite what is there', false)
    .action(async (file: string, flags: ReportOptions) => done(await (await import('../report.ts')).report(host, file, flags)));
}
