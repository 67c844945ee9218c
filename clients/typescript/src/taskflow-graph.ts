import { CycleError, invalid, type MillraceError } from "./error.js";
import { encode } from "./json.js";
import { checkName } from "./path.js";
import { taskMembers, type TaskFlowSpec } from "./taskflow-wire.js";

interface GraphJob {
  ref: string;
  spec: TaskFlowSpec;
  dependsOn: readonly string[]; // refs
}

/**
 * TaskFlowGraphBuilder builds a graph: jobs that depend on one another, which
 * {@link TaskFlow.submitGraph} stores all or none. Within the graph each job has a ref, any text
 * that the caller chooses.
 *
 *     const graph = new TaskFlowGraphBuilder();
 *     const extract = graph.add("extract", { name: "extract", queue: "etl" });
 *     graph.add("load", { name: "load", queue: "etl" }, extract);
 *     const ids = await taskflow.submitGraph(graph);
 */
export class TaskFlowGraphBuilder {
  readonly #jobs = new Map<string, GraphJob>();
  readonly #duplicates: string[] = [];

  /**
   * Adds a job to the graph and returns its ref. The job runs after the jobs with the refs in
   * after, which may be added later. Dependencies in the spec are ids of jobs outside the graph.
   * {@link TaskFlow.submitGraph} reports what is wrong with a graph.
   */
  add(ref: string, spec: TaskFlowSpec, ...after: string[]): string {
    if (this.#jobs.has(ref)) this.#duplicates.push(ref);
    else this.#jobs.set(ref, { ref, spec, dependsOn: after });
    return ref;
  }

  /** The refs of all jobs, in the order in which they were added. */
  refs(): string[] {
    return [...this.#jobs.keys()];
  }

  /** @internal The body of a request, or the mistakes of the graph by refs. */
  encode(op: string): string {
    const problem = this.#problem(op);
    if (problem) throw problem;
    const jobs = [...this.#jobs.values()].map(({ ref, spec, dependsOn }) => {
      try {
        checkName("ref", ref);
        return encode({ ref, ...taskMembers(spec),
          depends_on: [...dependsOn, ...(spec.dependencies ?? [])] });
      } catch (err) {
        throw invalid(op, `job "${ref}": ${err instanceof Error ? err.message : String(err)}`);
      }
    });
    return `{"jobs":[${jobs.join(",")}]}`;
  }

  #problem(op: string): MillraceError | undefined {
    const [duplicate] = this.#duplicates;
    if (duplicate !== undefined) return invalid(op, `ref "${duplicate}" is there twice`);
    if (this.#jobs.size === 0) return invalid(op, "the graph is empty");
    for (const { ref, dependsOn } of this.#jobs.values()) {
      const unknown = dependsOn.find((other) => !this.#jobs.has(other));
      if (unknown !== undefined) {
        return invalid(op, `job "${ref}" comes after "${unknown}", which is not in the graph`);
      }
    }
    const cycle = this.#cycle();
    return cycle && new CycleError({ op, cycle,
      detail: `invalid request: dependency cycle of ${cycle.length} jobs` });
  }

  /**
   * The refs of a dependency cycle, if there is one. It is a depth-first search that keeps a stack
   * of its own, because chains of dependencies may be long.
   */
  #cycle(): string[] | undefined {
    const done = new Set<string>();
    for (const start of this.#jobs.keys()) {
      const path: string[] = [];
      const onPath = new Map<string, Iterator<string>>(); // with the dependencies to visit
      const enter = (ref: string) => {
        path.push(ref);
        onPath.set(ref, (this.#jobs.get(ref)?.dependsOn ?? [])[Symbol.iterator]());
      };
      if (!done.has(start)) enter(start);
      for (let at = path.at(-1); at !== undefined; at = path.at(-1)) {
        const next = onPath.get(at)?.next();
        if (!next || next.done) {
          done.add(at);
          onPath.delete(at);
          path.pop();
        } else if (onPath.has(next.value)) {
          return path.slice(path.indexOf(next.value));
        } else if (!done.has(next.value)) {
          enter(next.value);
        }
      }
    }
    return undefined;
  }
}
