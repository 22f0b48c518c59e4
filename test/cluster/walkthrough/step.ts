import type { Lab } from './lab.ts';

/** What a step saw: `exact` must be the same whoever's agent it is; of `seen` only the names are compared. */
export interface Values {
  readonly exact: Readonly<Record<string, unknown>>;
  readonly seen?: Readonly<Record<string, unknown>>;
}

export interface Step {
  /** As in the list of walkthroughs. */
  readonly id: string;
  readonly what: string;
  /** Throws when it is not as it must be. */
  run(lab: Lab): Promise<Values>;
}

export interface Result extends Values {
  readonly what: string;
  readonly passed: boolean;
  readonly problem?: string;
}

/** One cluster's walk as it is kept. */
export interface Walk {
  readonly agent: string;
  readonly kubernetes: string;
  readonly steps: Readonly<Record<string, Result>>;
}

export const seconds = (ms: number): number => Math.round(ms / 10) / 100;
