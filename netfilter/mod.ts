/** The door of this room: the command, and what tests of other rooms may look at. */
export { main } from './main.ts';
