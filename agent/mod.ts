/** The agent's door for scripts/: what docs/feature-gates.md is printed from. The program itself is main.ts. */
export { gateRows } from './core/feature-gate-state.ts';
