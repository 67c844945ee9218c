import type { FetchBoxStatus } from "./fetchbox-wire.js";
import type { ForgeRunState } from "./forgerun-wire.js";
import type { ImageJobStatus } from "./images-wire.js";
import type { TaskFlowStatus } from "./taskflow-wire.js";

const finalStatuses: readonly string[] = [
  "COMPLETED", "FAILED", "BLOCKED", // TaskFlow
  "SUCCEEDED", "FAILED", "CANCELED", // ForgeRun
  "completed", "failed", // FetchBox and Images
];

/**
 * Reports whether a job with a status or state has ended. A job of ForgeRun that has failed can be
 * retried nevertheless, and one of FetchBox has ended when it has finishedAt as well.
 */
export function isFinal(
  status: TaskFlowStatus | ForgeRunState | FetchBoxStatus | ImageJobStatus): boolean {
  return finalStatuses.includes(status);
}
