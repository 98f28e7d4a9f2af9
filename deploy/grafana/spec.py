"""What the dashboards show: one table, of which generate.py makes Grafana's JSON.

Every metric is in docs/metrics.md, what begins with `muster:` in deploy/prometheus/rules/recording.yml.
tests/prometheus checks each expression with promtool and evaluates it against a live cluster.
"""

import dataclasses

# What the expression tests put in place of Grafana's variables.
CLUSTER = 'cluster=~"$cluster"'
RUN = f'{CLUSTER}, job_id=~"$run"'


@dataclasses.dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    about: str  # shown at the panel's title: what it means and what to look for
    queries: tuple
    unit: str = "short"  # Grafana's names of units
    kind: str = "timeseries"  # timeseries, stat, heatmap, table, state-timeline
    width: int = 12  # of 24
    height: int = 8
    stack: bool = False
    minimum: float = None
    maximum: float = None
    thresholds: tuple = ()  # (from, colour), rising; below the first it is green


@dataclasses.dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    about: str
    panels: tuple
    run_variable: bool = True


def stat(title, about, expr, legend="", **more):
    return Panel(title, about, (Query(expr, legend),), kind="stat", width=more.pop("width", 6),
                 height=more.pop("height", 4), **more)


def of_gpu(ours, dcgm, scale=""):
    """A figure of each GPU: the worker's, or where that leaves it to dcgm-exporter that one's, joined by UUID."""
    info = f'max by (uuid, node) (muster_gpu_info{{{CLUSTER}}})'
    theirs = f'label_replace({dcgm}, "uuid", "$1", "UUID", "(.*)"){scale} * on (uuid) group_left (node) {info}'
    return (Query(f"max by (node, gpu) ({ours}{{{CLUSTER}}}) or max by (node, gpu) ({theirs})",
                  "{{node}}, GPU {{gpu}}"),)


def rows_by_number(expression):
    """Grafana orders the rows of a heatmap by their labels as texts: ranks with four digits each."""
    padded = f'label_replace({expression}, "rank", "0000$1", "rank", "(.*)")'
    return f'label_replace({padded}, "rank", "$1", "rank", "0*(.{{4}})")'


GOODPUT = ((0, "red"), (0.8, "orange"), (0.9, "green"))

# Marked in all panels of the dashboards of runs: name, colour, where, text.
ANNOTATIONS = (
    ("Restarts", "orange", f"changes(muster_job_restarts_total{{{RUN}}}[1m]) > 0", "run {{job_id}} was restarted"),
    ("Checkpoints", "blue", f"changes(muster_checkpoint_last_success_step{{{RUN}}}[1m]) > 0",
     "a checkpoint of run {{job_id}} was committed"),
)

FLEET = Dashboard(
    "muster-cluster", "Muster cluster", "All runs and nodes: what runs, what waits, what is lost.", (
        stat("Running", "Runs that train now.",
             'sum(muster_job_state{state="running", cluster=~"$cluster"}) or vector(0)'),
        stat("Waiting", "Runs without a gang.",
             'sum(muster_jobs_pending{cluster=~"$cluster"})', thresholds=((1, "orange"),)),
        stat("Nodes ready", "Nodes that take ranks.",
             'sum(muster_node_state{state="ready", cluster=~"$cluster"})'),
        stat("Goodput, 6 h", "Share of the runs' time that went into steps which count.",
             "muster:cluster_goodput:ratio6h{cluster=~'$cluster'}", unit="percentunit", minimum=0, maximum=1,
             thresholds=GOODPUT),
        Panel("Runs by state", "The state of every run that was there lately.",
              (Query('sum by (state) (muster_job_state{cluster=~"$cluster"})', "{{state}}"),),
              stack=True, minimum=0),
        Panel("Slots", "Ranks that the nodes can run, and those in use or leaked.",
              (Query('sum(muster_node_slots{cluster=~"$cluster"})', "there"),
               Query('sum(muster_node_slots_used{cluster=~"$cluster"})', "used")), minimum=0),
        Panel("Tokens a second", "Each run, all ranks together.",
              (Query("muster:tokens_per_second:job{cluster=~'$cluster'}", "{{job_id}}"),), stack=True, minimum=0),
        Panel("Slots by use", "What the slots of all nodes are used for; queue: ranks that wait for some.",
              (Query('sum by (state) (rate(muster_cluster_goodput_seconds_total{cluster=~"$cluster"}[5m]))',
                     "{{state}}"),), stack=True, minimum=0),
        Panel("Ranks without a step by run", "Ranks' seconds a second in which a run had slots and no step came of it.",
              (Query('sum by (job_id) (rate(muster_job_goodput_seconds_total{state!~"step|queue", cluster=~"$cluster"}[5m]))', "{{job_id}}"),),
              stack=True, minimum=0),
        Panel("Rank hours lost, 24 h", "Of ranks, GPUs say, in slots without a step that counts, by what they went into.",
              (Query('sum by (state) (increase(muster_job_goodput_seconds_total{state!~"step|queue", cluster=~"$cluster"}[24h]))'
                     ' / 3600', "{{state}}"),), unit="h", stack=True, minimum=0),
        Panel("Spare slots", "Free ones of nodes that are ready: with these a run goes on whose node fails.",
              (Query('sum((muster_node_slots{cluster=~"$cluster"} - muster_node_slots_used{cluster=~"$cluster"})'
                     ' and on (cluster, node) muster_node_state{state="ready", cluster=~"$cluster"} == 1) or vector(0)', "free"),),
              minimum=0),
        Panel("Restarts by cause", "Attempts that were made after a failure; tier is what brought them up.",
              (Query("sum by (cause, tier) (increase(muster_restarts_total{cluster=~'$cluster'}[15m]))",
                     "{{cause}}, {{tier}}"),), stack=True, minimum=0),
        Panel("Wait in the queue", "From submission to the first placement: median and 95th percentile.",
              (Query("histogram_quantile(0.5, sum by (le) (increase(muster_queue_wait_seconds_bucket{cluster=~'$cluster'}[6h])))",
                     "median"),
               Query("histogram_quantile(0.95, sum by (le) (increase(muster_queue_wait_seconds_bucket{cluster=~'$cluster'}[6h])))",
                     "p95")), unit="s", minimum=0),
        Panel("Nodes by state", "Lost and quarantined ones need an operator.",
              (Query('sum by (state) (muster_node_state{cluster=~"$cluster"})', "{{state}}"),),
              stack=True, minimum=0),
        Panel("Heartbeat age", "Since each node was heard of last; a lease is 10 s.",
              (Query('max by (node) (muster_worker_heartbeat_age_seconds{cluster=~"$cluster"})', "{{node}}"),),
              unit="s", minimum=0, thresholds=((5, "orange"), (10, "red"))),
    ), run_variable=False)

JOB = Dashboard(
    "muster-job", "Muster run", "One run: where it is, how fast, and whether it converges.", (
        Panel("State", "The states of the run over time.",
              (Query(f"max by (job_id, state) (muster_job_state{{{RUN}}}) == 1", "{{state}}"),),
              kind="state-timeline", width=24, height=4),
        stat("Step", "Newest finished step.", f"max by (job_id) (muster_train_last_step{{{RUN}}})", "{{job_id}}"),
        stat("Goodput", "Share of the time in which it had slots that went into steps which count.",
             f"max by (job_id) (muster_job_goodput_ratio{{{RUN}}})", "{{job_id}}", unit="percentunit", minimum=0,
             maximum=1, thresholds=GOODPUT),
        stat("Last step ago", "Grows while nothing is finished, also while it recovers.",
             f"time() - max by (job_id) (muster_job_last_progress_timestamp_seconds{{{RUN}}})", "{{job_id}}", unit="s",
             thresholds=((120, "orange"), (600, "red"))),
        stat("Restarts", "Attempts after the first.",
             f"max by (job_id) (muster_job_restarts_total{{{RUN}}})", "{{job_id}}", thresholds=((3, "orange"),)),
        Panel("Loss", "Mean over the whole run of each step.",
              (Query(f"max by (job_id) (muster_train_loss{{{RUN}}})", "{{job_id}}"),)),
        Panel("Gradient norm", "Before clipping; a spike often comes before a loss that diverges.",
              (Query(f"muster:grad_norm:job{{{RUN}}}", "{{job_id}}"),)),
        Panel("Step time", "Median and 95th percentile of five minutes, all ranks.",
              (Query(f"muster:step_seconds:p50{{{RUN}}}", "{{job_id}} median"),
               Query(f"muster:step_seconds:p95{{{RUN}}}", "{{job_id}} p95")), unit="s", minimum=0),
        Panel("Tokens a second", "The whole run.",
              (Query(f"muster:tokens_per_second:job{{{RUN}}}", "{{job_id}}"),), minimum=0),
        Panel("Where a step's time goes", "Share of each part; comm_wait is waiting for other ranks.",
              (Query(f"muster:phase:ratio{{{RUN}}}", "{{phase}}"),), unit="percentunit", stack=True,
              minimum=0, maximum=1),
        Panel("Model FLOPs utilisation", "Share of the devices' peak, where that is known.",
              (Query(f"max by (job_id) (muster_train_mfu_ratio{{{RUN}}})", "{{job_id}}"),), unit="percentunit",
              minimum=0, maximum=1),
        Panel("GPU memory, peak and capacity", "The rank that uses most.",
              (Query(f'max by (job_id) (muster_cuda_memory_peak_bytes{{{RUN}, state="reserved"}})', "peak"),
               Query(f"max by (job_id) (muster_cuda_memory_capacity_bytes{{{RUN}}})", "capacity")),
              unit="bytes", minimum=0),
        Panel("Host memory", "Resident, of the rank that uses most, and all ranks together.",
              (Query(f"max by (job_id) (muster_host_rss_bytes{{{RUN}}})", "largest rank"),
               Query(f"sum by (job_id) (muster_host_rss_bytes{{{RUN}}})", "all ranks")), unit="bytes",
              minimum=0),
        Panel("Learning rate", "The newest step's.",
              (Query(f"max by (job_id) (muster_train_learning_rate{{{RUN}}})", "{{job_id}}"),)),
    ))

RANKS = Dashboard(
    "muster-ranks", "Muster ranks", "Each rank of one run: the slow one is the one that waits least.", (
        Panel("Straggler ratio", "The slowest rank's own work over the median's.",
              (Query(f"muster:straggler:ratio{{{RUN}}}", "{{job_id}}"),), minimum=1,
              thresholds=((1.15, "orange"), (1.5, "red"))),
        Panel("Time since a collective ended", "The oldest one under way; a hung rank shows it.",
              (Query(f"max by (rank) (muster_nccl_inflight_seconds{{{RUN}}})", "rank {{rank}}"),), unit="s",
              minimum=0, thresholds=((3, "orange"), (10, "red"))),
        Panel("Own work in a step, by rank", "Step time without the wait for others.",
              (Query(rows_by_number(f"muster:busy_seconds:rank{{{RUN}}}"), "rank {{rank}}"),), unit="s", kind="heatmap",
              width=24),
        Panel("Waiting for others, by rank", "Share of the step; the slow rank waits least.",
              (Query(rows_by_number(f"sum by (rank) (rate(muster_train_wait_seconds_total{{{RUN}}}[2m]))"),
                     "rank {{rank}}"),), unit="percentunit", kind="heatmap", width=24),
        Panel("Step time, by rank", "Mean of two minutes.",
              (Query(f"sum by (rank) (rate(muster_train_step_duration_seconds_sum{{{RUN}}}[2m])) / "
                     f"sum by (rank) (rate(muster_train_step_duration_seconds_count{{{RUN}}}[2m]))",
                     "rank {{rank}}"),), unit="s", minimum=0),
        Panel("Collectives a second", "By operation, in all groups; equal on all ranks of one.",
              (Query(f"sum by (op, rank) (rate(muster_nccl_collectives_total{{{RUN}}}[2m]))",
                     "{{op}}, rank {{rank}}"),), unit="ops", minimum=0),
        Panel("Host memory, by rank", "Resident memory of each process.",
              (Query(f"max by (rank) (muster_host_rss_bytes{{{RUN}}})", "rank {{rank}}"),), unit="bytes",
              minimum=0),
        Panel("Failed collectives", "As each rank met them; peer_lost is a symptom of another rank's end.",
              (Query(f"sum by (kind) (increase(muster_nccl_async_errors_total{{{RUN}}}[10m]))", "{{kind}}"),),
              minimum=0),
        Panel("GPU temperature", "The nodes of all runs; one that is throttled is a straggler.",
              of_gpu("muster_gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP"),
              unit="celsius", thresholds=((80, "orange"), (90, "red"))),
        Panel("GPU clock", "The multiprocessors' clock; lower than its neighbours': throttled.",
              of_gpu("muster_gpu_sm_clock_hertz", "DCGM_FI_DEV_SM_CLOCK", " * 1e6"), unit="hertz"),
        Panel("GPU utilisation", "Share of the time in which a kernel ran.",
              of_gpu("muster_gpu_utilization_ratio", "DCGM_FI_DEV_GPU_UTIL", " / 100"),
              unit="percentunit", minimum=0, maximum=1),
        Panel("GPU power", "",
              of_gpu("muster_gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE"), unit="watt",
              minimum=0),
    ))

RECOVERY = Dashboard(
    "muster-recovery", "Muster recovery", "What failed, how long it took to go on, and what was lost.", (
        stat("Recoveries, 6 h", "All runs.",
             'sum(increase(muster_recovery_duration_seconds_count{stage="total", cluster=~"$cluster"}[6h])) or vector(0)'),
        stat("95th percentile, 6 h", "From the fault until training again.", "muster:recovery_seconds:p95{cluster=~'$cluster'}",
             unit="s", thresholds=((10, "orange"), (30, "red"))),
        stat("Steps lost, 6 h", "Finished steps that were done again.",
             "sum(increase(muster_lost_steps_total{cluster=~'$cluster'}[6h]))"),
        stat("Hangs, 6 h", "Gangs that stood still, whose culprit was ended.",
             "sum(increase(muster_nccl_hangs_total{cluster=~'$cluster'}[6h])) or vector(0)"),
        Panel("Mean time by stage", "Which stage a recovery spends its time in.",
              (Query("sum by (stage) (increase(muster_recovery_duration_seconds_sum{stage!='total', cluster=~'$cluster'}[1h])) / "
                     "sum by (stage) (increase(muster_recovery_duration_seconds_count{stage!='total', cluster=~'$cluster'}[1h]))",
                     "{{stage}}"),), unit="s", stack=True, minimum=0),
        Panel("Restarts by tier", "in_place keeps the processes; requeue starts over.",
              (Query("sum by (tier) (increase(muster_restarts_total{cluster=~'$cluster'}[15m]))", "{{tier}}"),), stack=True,
              minimum=0),
        Panel("Restarts by cause", "", (Query("sum by (cause) (increase(muster_restarts_total{cluster=~'$cluster'}[15m]))",
                                              "{{cause}}"),), stack=True, minimum=0),
        Panel("Lost time by use", "Seconds of ranks since the beginning, by what was no step.",
              (Query(f'max by (job_id, state) (muster_job_goodput_seconds_total{{{RUN}, state!~"step|queue"}})',
                     "{{job_id}} {{state}}"),), unit="s", minimum=0),
        Panel("Rank time by kind", "What the ranks' seconds went into, as they book them.",
              (Query(f"sum by (category) (rate(muster_train_time_seconds_total{{{RUN}}}[5m]))", "{{category}}"),),
              stack=True, minimum=0),
        Panel("Hangs by suspect", "What the culprit was doing; stopped: its process was.",
              (Query("sum by (suspect) (increase(muster_nccl_hangs_total{cluster=~'$cluster'}[15m]))", "{{suspect}}"),), minimum=0),
        Panel("Xid errors", "Errors that the GPU driver reported, by node.",
              (Query("sum by (node) (increase(muster_worker_xid_events_total{cluster=~'$cluster'}[15m]))", "{{node}}"),), minimum=0),
        Panel("Processes ended for want of memory", "By the kernel, by node.",
              (Query("sum by (node) (increase(muster_worker_oom_kills_total{cluster=~'$cluster'}[15m]))", "{{node}}"),), minimum=0),
    ))

STORAGE = Dashboard(
    "muster-storage", "Muster storage", "Checkpoints: how new, how fast, how sound.", (
        stat("Newest checkpoint", "Step that a run would go on from if all nodes failed now.",
             f"max by (job_id) (muster_checkpoint_last_success_step{{{RUN}}})", "{{job_id}}"),
        stat("Its age", "Since it was committed.",
             f"time() - max by (job_id) (muster_checkpoint_last_success_timestamp_seconds{{{RUN}}})", "{{job_id}}",
             unit="s"),
        stat("Steps at risk", "Finished, and in no durable checkpoint.",
             f"max by (job_id) (muster_train_last_step{{{RUN}}}) - "
             f"max by (job_id) (muster_checkpoint_last_success_step{{{RUN}}})", "{{job_id}}"),
        stat("Damaged", "Checkpoints that cannot be resumed from.",
             f"max by (job_id) (muster_checkpoints_damaged{{{RUN}}})", "{{job_id}}", thresholds=((1, "red"),)),
        Panel("Duration by phase", "95th percentile: stage is what training waits for, write the shard, commit all.",
              (Query("histogram_quantile(0.95, sum by (phase, le) "
                     "(increase(muster_checkpoint_duration_seconds_bucket{cluster=~'$cluster'}[30m])))", "{{phase}}"),), unit="s",
              minimum=0),
        Panel("Bytes a second", "That the ranks made durable, by node.",
              (Query(f"sum by (node) (rate(muster_checkpoint_bytes_total{{{RUN}}}[5m]))", "{{node}}"),),
              unit="Bps", stack=True, minimum=0),
        Panel("From order to commit", "The newest checkpoint of each run; half a stop's time is too much.",
              (Query(f"max by (job_id) (muster_job_checkpoint_seconds{{{RUN}}})", "{{job_id}}"),
               Query("0.5 * max(muster_stop_grace_seconds{cluster=~'$cluster'})", "half of a stop's time")), unit="s", minimum=0),
        Panel("Failures by reason", "", (Query("sum by (reason) (increase(muster_checkpoint_failures_total{cluster=~'$cluster'}[15m]))",
                                               "{{reason}}"),), minimum=0),
        Panel("Read again", "Committed checkpoints that were read again, by what was found.",
              (Query("sum by (result) (increase(muster_checkpoint_scrubs_total{cluster=~'$cluster'}[6h]))", "{{result}}"),), minimum=0),
        Panel("Newest snapshot", "Sealed in memory: what a recovery goes back to while a copy lives.",
              (Query(f"max by (job_id) (muster_train_snapshot_step{{{RUN}}})", "{{job_id}}"),)),
    ))

DASHBOARDS = (FLEET, JOB, RANKS, RECOVERY, STORAGE)
