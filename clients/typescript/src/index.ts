export type { CallOptions } from "./abort.js";
export { Admin } from "./admin.js";
export type { AdminComponent, AdminConnectionPool, AdminDeadLetter, AdminDeadLetterFilter,
  AdminDeadLetterGroup, AdminHealth, AdminNode, AdminNodeComponent, AdminQueue, AdminQueueChange,
  AdminQueueFilter, AdminSchedule, AdminScheduleSpec, AdminScheduleTick, AdminWorker }
  from "./admin-fleet.js";
export type { AdminAction, AdminActionResult, AdminBody, AdminContract, AdminCount,
  AdminCountQuery, AdminJob, AdminJobDetail, AdminJobFilter, AdminJobLinks, AdminPhase, AdminReason,
  AdminReasonCode, AdminSubmission, AdminTimeline, AdminTimelineEntry, AdminWhy }
  from "./admin-jobs.js";
export { Client, type Config } from "./client.js";
export { AbortedError, ConflictError, CycleError, DrainTimeoutError, InvalidError, MillraceError,
  NotFoundError, NotMillraceError, RetryableError, RunCanceledError, RunFinishedError,
  RunLostError, UnauthorizedError } from "./error.js";
export { FetchBox, type LogOptions } from "./fetchbox.js";
export type { FetchBoxComponent, FetchBoxDeadLetter, FetchBoxFailure, FetchBoxHealth,
  FetchBoxJob, FetchBoxLogEntry, FetchBoxLogPosition, FetchBoxManifest, FetchBoxReceipt,
  FetchBoxReplay, FetchBoxResource, FetchBoxSpec, FetchBoxStatus, FetchBoxTask }
  from "./fetchbox-wire.js";
export { isFinal } from "./final.js";
export { ForgeRun, type OnceOptions } from "./forgerun.js";
export { forgeRunEvents, type ForgeRunAPIKey, type ForgeRunActionResult,
  type ForgeRunCreatedWebhook, type ForgeRunDefinition, type ForgeRunDelivery,
  type ForgeRunDeliveryStatus, type ForgeRunDeliveryAttempt, type ForgeRunEvent,
  type ForgeRunEventName, type ForgeRunFailure, type ForgeRunIssuedAPIKey, type ForgeRunJob,
  type ForgeRunOutcome, type ForgeRunReceipt, type ForgeRunDeliveryReplayFilter,
  type ForgeRunDeliveryReplayResult, type ForgeRunReport, type ForgeRunSpec, type ForgeRunState,
  type ForgeRunType, type ForgeRunWebhook, type ForgeRunWebhookTest, type ForgeRunWorkKind }
  from "./forgerun-wire.js";
export { Images } from "./images.js";
export type { ImageDeadLetter, ImageFile, ImageFileStatus, ImageJob, ImageJobStatus,
  ImageJobType, ImageReceipt, ImageUpload, ImageVariant } from "./images-wire.js";
export { JobError, Release, final, type JobErrorOptions } from "./job-error.js";
export { JobRun, type JobHandler, type JobMiddleware } from "./job-run.js";
export { JobWorker, type JobWorkerConfig } from "./job-worker.js";
export { RawJSON } from "./json.js";
export type { Logger } from "./outage.js";
export type { ListOptions } from "./pages.js";
export { Relay, type EnqueueOptions, type ClaimOptions, type RelayDeadLetter } from "./relay.js";
export type { ClaimedRelayJob, RelayHeartbeat, RelayJob, RelayMode, RelayRun, RelaySpec }
  from "./relay-wire.js";
export type { Retry } from "./retry.js";
export { Run, type Handler, type Middleware } from "./run.js";
export { TaskFlow, type RerunOptions } from "./taskflow.js";
export { TaskFlowGraphBuilder } from "./taskflow-graph.js";
export type { TaskFlowCallback, TaskFlowEdge, TaskFlowFailure, TaskFlowFilter, TaskFlowGraph,
  TaskFlowJob, TaskFlowGraphJob, TaskFlowPage, TaskFlowPatch, TaskFlowRetryPolicy, TaskFlowSpec,
  TaskFlowStatus, TaskFlowBackoffStrategy } from "./taskflow-wire.js";
export { InvalidWebhookError, verifyWebhook, webhookTolerance, type ForgeRunWebhookEvent, type
  WebhookHeaders } from "./webhook.js";
export { Worker, type WorkerConfig, type WorkerSettings } from "./worker.js";
export { WorkerAPI } from "./worker-api.js";
export type { ClaimQuery, ClaimedJob, FinishResult, HeartbeatReply, JobFailure, RunOutcome,
  WorkerContract } from "./worker-api-wire.js";
